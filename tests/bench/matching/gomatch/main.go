// Command gomatch allocates claims with the allocator of k8s.io/dynamic-resource-allocation, the way the scheduler's
// plugin uses it, and says how long that took and what each claim got. It is the Go half of the comparison in
// tests/bench/matching, whose Python half does the same with dra_sdk.tools.scheduling.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// The scheduler keeps so many compiled expressions.
const compiledExpressions = 10

// world is the file that both halves read.
type world struct {
	Nodes   []*corev1.Node               `json:"nodes"`
	Slices  []*resourceapi.ResourceSlice `json:"slices"`
	Classes []*resourceapi.DeviceClass   `json:"classes"`
	Claims  []*resourceapi.ResourceClaim `json:"claims"`
}

// outcome is what one claim got; Node is empty where it fits nowhere.
type outcome struct {
	Node       string                        `json:"node"`
	Allocation *resourceapi.AllocationResult `json:"allocation,omitempty"`
}

type report struct {
	Seconds  float64   `json:"seconds"`
	Outcomes []outcome `json:"outcomes"`
}

type classes map[string]*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	all := make([]*resourceapi.DeviceClass, 0, len(c))
	for _, class := range c {
		all = append(all, class)
	}
	return all, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, found := c[name]; found {
		return class, nil
	}
	return nil, fmt.Errorf("device class %s does not exist", name)
}

func main() {
	path := flag.String("world", "", "JSON file with nodes, slices, classes and claims")
	flag.Parse()
	if err := run(*path); err != nil {
		fmt.Fprintln(os.Stderr, "gomatch:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var given world
	if err := json.Unmarshal(text, &given); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	text = nil
	start := time.Now()
	outcomes, err := match(context.Background(), &given)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report{Seconds: time.Since(start).Seconds(), Outcomes: outcomes})
}

// match gives each claim to the first node that it fits on, in the order of the file.
func match(ctx context.Context, given *world) ([]outcome, error) {
	known := make(classes, len(given.Classes))
	for _, class := range given.Classes {
		known[class.Name] = class
	}
	compiled := cel.NewCache(compiledExpressions, cel.Features{EnableConsumableCapacity: true})
	inUse := sets.New[structured.DeviceID]()
	outcomes := make([]outcome, 0, len(given.Claims))
	for _, claim := range given.Claims {
		// One allocator for each pod, with a copy of what is in use: so does the scheduler's PreFilter.
		state := structured.AllocatedState{
			AllocatedDevices:         inUse.Clone(),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
		}
		allocator, err := structured.NewAllocator(ctx, features(), state, known, given.Slices, compiled)
		if err != nil {
			return nil, err
		}
		got, err := firstFit(ctx, allocator, given.Nodes, claim)
		if err != nil {
			return nil, fmt.Errorf("claim %s: %w", claim.Name, err)
		}
		if got.Allocation != nil {
			for _, result := range got.Allocation.Devices.Results {
				inUse.Insert(structured.MakeDeviceID(result.Driver, result.Pool, result.Device))
			}
		}
		outcomes = append(outcomes, got)
	}
	return outcomes, nil
}

func firstFit(
	ctx context.Context, allocator structured.Allocator, nodes []*corev1.Node, claim *resourceapi.ResourceClaim,
) (outcome, error) {
	for _, node := range nodes {
		results, err := allocator.Allocate(ctx, node, []*resourceapi.ResourceClaim{claim})
		if err != nil {
			return outcome{}, err
		}
		if len(results) == 1 {
			return outcome{Node: node.Name, Allocation: &results[0]}, nil
		}
	}
	return outcome{}, nil
}

// features are those of a scheduler of 1.36 with all feature gates as they are by default.
func features() structured.Features {
	return structured.Features{
		AdminAccess:            true,
		ConsumableCapacity:     true,
		DeviceBindingAndStatus: true,
		DeviceTaints:           true,
		PartitionableDevices:   true,
		PrioritizedList:        true,
	}
}
