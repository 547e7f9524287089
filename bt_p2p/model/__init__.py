"""The transformer, cut into blocks that train alone.

transformer.py  pre-norm layers with rotary positions
block.py        one block: embedding, layers, head; seeded initial weights
kv_cache.py     keys and values of the positions a block has seen
packing.py      sequences of many lengths and pasts in one pass
seeding.py      text -> random generator, the same on every machine
sizes.py        parameters, FLOPs and memory of a block, by arithmetic alone
device.py       which device to run on, and whether bf16 pays there
wire.py         tensors <-> bytes for peers, hash of a set of tensors
checkpoint.py   the only save and load of tensors on disk
"""
