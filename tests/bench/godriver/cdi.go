package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

const cdiClass = "device"

// cdiDirectory writes one spec file per claim, with one CDI device per prepared device.
type cdiDirectory struct {
	path   string
	vendor string
	cache  *cdi.Cache
}

// newCDIDirectory returns a directory that is only written to, so nothing in it is watched or read.
func newCDIDirectory(path, vendor string) (*cdiDirectory, error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(path), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("open CDI directory %s: %w", path, err)
	}
	return &cdiDirectory{path: path, vendor: vendor, cache: cache}, nil
}

func (d *cdiDirectory) id(name string) string {
	return fmt.Sprintf("%s/%s=%s", d.vendor, cdiClass, name)
}

func (d *cdiDirectory) file(uid types.UID) string {
	return cdi.GenerateTransientSpecName(d.vendor, cdiClass, string(uid)) + ".json"
}

func (d *cdiDirectory) write(uid types.UID, devices []heldDevice) error {
	spec := &specs.Spec{Kind: d.vendor + "/" + cdiClass}
	for _, device := range devices {
		edits := specs.ContainerEdits{}
		for name, value := range device.Env {
			edits.Env = append(edits.Env, name+"="+value)
		}
		slices.Sort(edits.Env)
		spec.Devices = append(spec.Devices, specs.Device{Name: device.CDI, ContainerEdits: edits})
	}
	version, err := specs.MinimumRequiredVersion(spec)
	if err != nil {
		return fmt.Errorf("choose a CDI version: %w", err)
	}
	spec.Version = version
	if err := d.cache.WriteSpec(spec, d.file(uid)); err != nil {
		return fmt.Errorf("write CDI spec: %w", err)
	}
	return nil
}

// ensure writes the spec again where it was lost, as it is with every reboot.
func (d *cdiDirectory) ensure(uid types.UID, devices []heldDevice) error {
	_, err := os.Stat(filepath.Join(d.path, d.file(uid)))
	if errors.Is(err, fs.ErrNotExist) {
		return d.write(uid, devices)
	}
	return err
}

func (d *cdiDirectory) remove(uid types.UID) error {
	if err := d.cache.RemoveSpec(d.file(uid)); err != nil {
		return fmt.Errorf("remove CDI spec: %w", err)
	}
	return nil
}
