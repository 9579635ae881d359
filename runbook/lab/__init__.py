"""The embedded GPU host: a loopback SSH server, a stand-in driver tool, and a real small EAGLE-3 server on torch."""
