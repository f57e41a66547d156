package main

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"
)

// resources returns one pool of made-up devices, cut into slices as the API's limit demands.
func resources(pool string, count int) resourceslice.DriverResources {
	devices := make([]resourceapi.Device, count)
	for i := range devices {
		devices[i] = resourceapi.Device{
			Name: deviceName(i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"index":   {IntValue: ptr.To(int64(i))},
				"model":   {StringValue: ptr.To("bench-one")},
				"version": {VersionValue: ptr.To("1.2.3")},
				"healthy": {BoolValue: ptr.To(true)},
			},
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				"memory": {Value: resource.MustParse("16Gi")},
			},
		}
	}
	var slices []resourceslice.Slice
	for len(devices) > resourceapi.ResourceSliceMaxDevices {
		slices = append(slices, resourceslice.Slice{Devices: devices[:resourceapi.ResourceSliceMaxDevices]})
		devices = devices[resourceapi.ResourceSliceMaxDevices:]
	}
	slices = append(slices, resourceslice.Slice{Devices: devices})
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool: {Slices: slices}}}
}

func deviceName(index int) string {
	return fmt.Sprintf("device-%04d", index)
}
