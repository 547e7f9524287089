"""Local work: one replica trains one block.

data.py      batch = f(seed, peer, round, step)
optim.py     AdamW and the learning rate
trainer.py   `BlockTrainer` owns a block and its optimizer
baseline.py  the cross entropy any model must beat
"""
