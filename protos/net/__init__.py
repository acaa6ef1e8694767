"""What every peer does alike on the network: addresses, access, connections."""
