"""A virtual machine with real PCI functions and an IOMMU, and the tests of drivers inside it."""
