"""Serves a policy over gRPC. Other rooms import `sparring.policy_server.client` and nothing else from here."""
