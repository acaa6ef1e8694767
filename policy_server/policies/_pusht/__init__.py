"""Parts of the scripted expert for PushT."""
