"""Generation over many peers.

- `block_rpc`: the port through which one block of one holder is asked
- `service`: answers such requests for the block this peer holds; `batcher`: those that wait, together
- `route`: which holder is asked for which block, pure
- `session`: one traversal of all blocks, with another holder when one fails
- `generate`: bytes from traversals (`ar`, `sweep`); `sampling`, `text`: logits to bytes to text
"""
