"""Virtual functions that go to pods and come back, in the virtual machine without a control plane."""
