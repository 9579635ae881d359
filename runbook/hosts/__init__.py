"""The controller's side of a host: resolving a target, connecting, and talking to the on-host helper."""
