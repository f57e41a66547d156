package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
)

// errFatal is the reason for ending when the helper cannot go on.
var errFatal = errors.New("fatal error")

// driver prepares made-up devices. The helper never calls it twice at once.
type driver struct {
	name       string
	writeAhead bool
	store      *claimStore
	cdi        *cdiDirectory
	end        context.CancelCauseFunc
}

var _ kubeletplugin.DRAPlugin = &driver{}

func newDriver(set settings, end context.CancelCauseFunc) (*driver, error) {
	store, err := openStore(set.pluginDir)
	if err != nil {
		return nil, err
	}
	directory, err := newCDIDirectory(set.cdiDir, set.driverName)
	if err != nil {
		return nil, err
	}
	return &driver{name: set.driverName, writeAhead: set.writeAhead, store: store, cdi: directory, end: end}, nil
}

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (d *driver) PrepareResourceClaims(
	ctx context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot prepare", "claim", klog.KObj(claim))
			results[claim.UID] = kubeletplugin.PrepareResult{Err: err}
			continue
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: d.answer(devices)}
	}
	return results, nil
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (d *driver) UnprepareResourceClaims(
	ctx context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		err := d.cdi.remove(claim.UID)
		if err == nil {
			err = d.store.remove(claim.UID)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot unprepare", "claim", claim.NamespacedName)
		}
		results[claim.UID] = err
	}
	return results, nil
}

// HandleError implements [kubeletplugin.DRAPlugin].
func (d *driver) HandleError(ctx context.Context, err error, msg string) {
	utilruntime.HandleErrorWithContext(ctx, err, msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.end(fmt.Errorf("%w: %s: %w", errFatal, msg, err))
	}
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) ([]heldDevice, error) {
	if held, known := d.store.claims[claim.UID]; known && held.Complete {
		return held.Devices, d.cdi.ensure(claim.UID, held.Devices)
	}
	devices, err := d.devicesOf(claim)
	if err != nil {
		return nil, err
	}
	held := heldClaim{Namespace: claim.Namespace, Name: claim.Name, Devices: devices}
	if d.writeAhead {
		if err := d.store.put(claim.UID, held); err != nil {
			return nil, err
		}
	}
	if err := d.cdi.write(claim.UID, devices); err != nil {
		return nil, err
	}
	held.Complete = true
	if err := d.store.put(claim.UID, held); err != nil {
		return nil, errors.Join(err, d.cdi.remove(claim.UID))
	}
	return devices, nil
}

// devicesOf works out what a claim's devices of this driver will change in a container.
func (d *driver) devicesOf(claim *resourceapi.ResourceClaim) ([]heldDevice, error) {
	var devices []heldDevice
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != d.name {
			continue
		}
		if err := d.refuseHeld(claim.UID, result); err != nil {
			return nil, err
		}
		config, err := configFor(d.name, claim.Status.Allocation, result.Request)
		if err != nil {
			return nil, err
		}
		variable := "BENCH_" + strings.ToUpper(strings.ReplaceAll(result.Device, "-", "_"))
		devices = append(devices, heldDevice{
			Request: result.Request,
			Pool:    result.Pool,
			Name:    result.Device,
			CDI:     string(claim.UID) + "-" + result.Device,
			Env: map[string]string{
				variable:            result.Device,
				variable + "_LEVEL": strconv.Itoa(config.Level),
				variable + "_LABEL": config.Label,
			},
		})
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("the claim's allocation holds no device of driver %s", d.name)
	}
	return devices, nil
}

// refuseHeld is the last line of defence against giving one device to two claims.
func (d *driver) refuseHeld(uid types.UID, result resourceapi.DeviceRequestAllocationResult) error {
	if result.AdminAccess != nil && *result.AdminAccess {
		return nil
	}
	for other, claim := range d.store.claims {
		for _, device := range claim.Devices {
			if other != uid && device.Pool == result.Pool && device.Name == result.Device {
				return fmt.Errorf("device %s/%s is held by claim %s/%s", result.Pool, result.Device, claim.Namespace, claim.Name)
			}
		}
	}
	return nil
}

func (d *driver) answer(devices []heldDevice) []kubeletplugin.Device {
	answered := make([]kubeletplugin.Device, 0, len(devices))
	for _, device := range devices {
		answered = append(answered, kubeletplugin.Device{
			Requests:     []string{device.Request},
			PoolName:     device.Pool,
			DeviceName:   device.Name,
			CDIDeviceIDs: []string{d.cdi.id(device.CDI)},
		})
	}
	return answered
}
