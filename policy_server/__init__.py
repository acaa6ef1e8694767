"""Serves a policy over gRPC. Other rooms import `policy_server.client` and nothing else from here."""
