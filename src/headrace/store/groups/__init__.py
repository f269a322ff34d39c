"""Groups of workers, and the resources that were requested from containers for them."""
