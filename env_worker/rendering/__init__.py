"""What draws the images: devices that are tried, chosen and left alone, and the name of the renderer."""
