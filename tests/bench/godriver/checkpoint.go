package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager/checksum"
	checkpointerrors "k8s.io/kubernetes/pkg/kubelet/checkpointmanager/errors"
)

const checkpointFile = "checkpoint.json"

// heldDevice is one device that a claim holds, with all that is needed to answer for it again.
type heldDevice struct {
	Request string            `json:"request"`
	Pool    string            `json:"pool"`
	Name    string            `json:"name"`
	CDI     string            `json:"cdi"`
	Env     map[string]string `json:"env"`
}

// heldClaim is a claim that holds devices.
type heldClaim struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Complete  bool         `json:"complete"`
	Devices   []heldDevice `json:"devices"`
}

// checkpoint is the one file in which all held claims are kept.
type checkpoint struct {
	Checksum checksum.Checksum       `json:"checksum"`
	Claims   map[types.UID]heldClaim `json:"claims"`
}

var _ checkpointmanager.Checkpoint = &checkpoint{}

// MarshalCheckpoint implements [checkpointmanager.Checkpoint].
func (c *checkpoint) MarshalCheckpoint() ([]byte, error) {
	sum, err := c.sum()
	if err != nil {
		return nil, err
	}
	c.Checksum = sum
	return json.Marshal(c)
}

// UnmarshalCheckpoint implements [checkpointmanager.Checkpoint].
func (c *checkpoint) UnmarshalCheckpoint(blob []byte) error {
	return json.Unmarshal(blob, c)
}

// VerifyChecksum implements [checkpointmanager.Checkpoint].
func (c *checkpoint) VerifyChecksum() error {
	sum, err := c.sum()
	if err != nil {
		return err
	}
	if sum != c.Checksum {
		return fmt.Errorf("checksum is %d, want %d", c.Checksum, sum)
	}
	return nil
}

func (c *checkpoint) sum() (checksum.Checksum, error) {
	claims, err := json.Marshal(c.Claims)
	return checksum.New(string(claims)), err
}

// claimStore keeps the held claims in memory and, with every change, in the checkpoint.
type claimStore struct {
	manager checkpointmanager.CheckpointManager
	claims  map[types.UID]heldClaim
}

func openStore(directory string) (*claimStore, error) {
	manager, err := checkpointmanager.NewCheckpointManager(directory)
	if err != nil {
		return nil, fmt.Errorf("open checkpoints in %s: %w", directory, err)
	}
	found := &checkpoint{Claims: map[types.UID]heldClaim{}}
	err = manager.GetCheckpoint(checkpointFile, found)
	if err != nil && !errors.Is(err, checkpointerrors.ErrCheckpointNotFound) {
		return nil, fmt.Errorf("read checkpoint %s in %s: %w", checkpointFile, directory, err)
	}
	return &claimStore{manager: manager, claims: found.Claims}, nil
}

// put remembers a claim; where writing fails nothing has changed.
func (s *claimStore) put(uid types.UID, claim heldClaim) error {
	before, known := s.claims[uid]
	s.claims[uid] = claim
	err := s.save()
	if err != nil && known {
		s.claims[uid] = before
	} else if err != nil {
		delete(s.claims, uid)
	}
	return err
}

// remove forgets a claim; where writing fails nothing has changed.
func (s *claimStore) remove(uid types.UID) error {
	before, known := s.claims[uid]
	if !known {
		return nil
	}
	delete(s.claims, uid)
	err := s.save()
	if err != nil {
		s.claims[uid] = before
	}
	return err
}

func (s *claimStore) save() error {
	if err := s.manager.CreateCheckpoint(checkpointFile, &checkpoint{Claims: s.claims}); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}
