package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	configVersion = "bench.dra-sdk.example/v1"
	configKind    = "BenchConfig"
	maxLevel      = 100
)

// benchConfig is what a claim or class may ask of a device.
type benchConfig struct {
	metav1.TypeMeta `json:",inline"`
	Level           int    `json:"level"`
	Label           string `json:"label"`
}

func defaultConfig() benchConfig {
	return benchConfig{Level: 1, Label: "none"}
}

// configFor returns what applies to one allocated device: of the entries that name its request (or no request) the
// last one, and the claim's before the class's.
func configFor(driver string, allocation *resourceapi.AllocationResult, request string) (benchConfig, error) {
	base, _, _ := strings.Cut(request, "/")
	chosen := -1
	for i, entry := range allocation.Devices.Config {
		if entry.Opaque == nil || entry.Opaque.Driver != driver {
			continue
		}
		if len(entry.Requests) > 0 && !slices.Contains(entry.Requests, request) && !slices.Contains(entry.Requests, base) {
			continue
		}
		if chosen >= 0 && entry.Source == resourceapi.AllocationConfigSourceClass &&
			allocation.Devices.Config[chosen].Source == resourceapi.AllocationConfigSourceClaim {
			continue
		}
		chosen = i
	}
	if chosen < 0 {
		return defaultConfig(), nil
	}
	config, err := decodeConfig(allocation.Devices.Config[chosen].Opaque.Parameters.Raw)
	if err != nil {
		return config, fmt.Errorf("config[%d]: %w", chosen, err)
	}
	return config, nil
}

// decodeConfig reads opaque parameters; an unknown field, kind or version is an error.
func decodeConfig(raw []byte) (benchConfig, error) {
	config := defaultConfig()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&config); err != nil {
		return config, err
	}
	if config.APIVersion != configVersion || config.Kind != configKind {
		return config, fmt.Errorf("unknown apiVersion %q kind %q", config.APIVersion, config.Kind)
	}
	if config.Level < 0 || config.Level > maxLevel {
		return config, fmt.Errorf("level: %d is not between 0 and %d", config.Level, maxLevel)
	}
	return config, nil
}
