"""A virtual machine with real PCI functions and an IOMMU, and what the drivers do in it."""
