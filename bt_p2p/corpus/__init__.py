"""The text a run trains on.

corpus.py       manifest's description -> checked text, cut into training and held-out bytes
embedded.py     English prose that ships inside CPython; needs no network
text.py         a file, or a folder of text files
huggingface.py  a Hugging Face data set (optional extra)
"""
