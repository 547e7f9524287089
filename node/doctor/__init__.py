"""`bt-node doctor`: everything that can keep a node from taking part, looked at before it joins."""
