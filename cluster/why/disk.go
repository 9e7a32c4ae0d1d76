// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// The defaults of the kubelet for a disk that fills. Source: kubelet, imageGCHighThresholdPercent and evictionHard.
const (
	defaultRemoves = 85
	defaultEvicts  = "10%"
)

// Disk is a file system of a node.
type Disk struct {
	Node string `json:"node"`
	// What is "nodefs", "imagefs" or a directory.
	What string `json:"what"`
	// Capacity and Free are in bytes, Inodes and InodesFree in files. Zero means unknown.
	Capacity   uint64 `json:"capacity,omitempty"`
	Free       uint64 `json:"free,omitempty"`
	Inodes     uint64 `json:"inodes,omitempty"`
	InodesFree uint64 `json:"inodesFree,omitempty"`
	// RemovesImages and EvictsPods are the free bytes below which the kubelet does this. Zero means unknown: the kubelet's defaults.
	RemovesImages uint64 `json:"removesImages,omitempty"`
	EvictsPods    uint64 `json:"evictsPods,omitempty"`
}

// Under returns the disk with the limits of its kubelet, or the kubelet's defaults where k has none.
func (d Disk) Under(k kubeletv1beta1.KubeletConfiguration) Disk {
	used := uint64(defaultRemoves)
	if p := k.ImageGCHighThresholdPercent; p != nil && *p >= 0 && *p <= 100 {
		used = uint64(*p)
	}
	d.RemovesImages = d.Capacity / 100 * (100 - used)
	signal := "nodefs.available"
	if d.What == "imagefs" {
		signal = "imagefs.available"
	}
	d.EvictsPods = amount(cmp.Or(k.EvictionHard[signal], defaultEvicts), d.Capacity)
	return d
}

// amount reads a limit of the kubelet, a quantity of bytes or a percentage; 0 if it is neither.
func amount(limit string, all uint64) uint64 {
	if share, is := strings.CutSuffix(limit, "%"); is {
		if percent, err := strconv.ParseFloat(share, 64); err == nil && percent >= 0 && percent <= 100 {
			return uint64(float64(all) / 100 * percent)
		}
		return 0
	}
	if q, err := resource.ParseQuantity(limit); err == nil && q.Value() > 0 {
		return uint64(q.Value()) //nolint:gosec // positive
	}
	return 0
}

// limits returns the disk with known limits.
func (d Disk) limits() Disk {
	if d.RemovesImages == 0 && d.EvictsPods == 0 {
		return d.Under(kubeletv1beta1.KubeletConfiguration{})
	}
	return d
}

// Full reports whether the kubelet evicts pods because of the disk.
func (d Disk) Full() bool {
	return d.Capacity > 0 && d.Free < d.limits().EvictsPods
}

// NearlyFull reports whether the disk is not Full, but the kubelet removes images because of it, or is about to evict pods.
func (d Disk) NearlyFull() bool {
	l := d.limits()
	return d.Capacity > 0 && !d.Full() && d.Free < max(l.RemovesImages, l.EvictsPods/2*3)
}

// Limits describes what the kubelet does when the disk fills.
func (d Disk) Limits() string {
	l := d.limits()
	return fmt.Sprintf("below %s free the kubelet removes unused images, below %s it evicts pods", gib(l.RemovesImages), gib(l.EvictsPods))
}

// Space describes how much of the disk is free.
func (d Disk) Space() string {
	return gib(d.Free) + " of " + gib(d.Capacity) + " are free"
}

func gib(bytes uint64) string {
	return strconv.FormatFloat(float64(bytes)/(1<<30), 'f', 1, 64) + " GiB"
}
