// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/kube"
)

// answer is what pulling an image has brought.
type answer struct {
	state pullState
	// text is what the kubelet says of it, since is when it failed first.
	text  string
	since time.Time
}

type pullState int

const (
	// pullPending: the kubelet has not reported on it.
	pullPending pullState = iota
	// pullFails: it cannot be pulled now. The kubelet tries again.
	pullFails
	// pullRefused: it will not be had by trying again.
	pullRefused
	// pullFull: the node has no room for it.
	pullFull
	// pulled: the node has it.
	pulled
	// pullLeft: its node does not take it, which is no fault of the image.
	pullLeft
)

// over reports whether nothing more is to be expected.
func (a answer) over() bool { return a.state > pullFails }

// pullAgain is how long an image may fail for a reason that may pass.
const pullAgain = time.Minute

// have are the reasons for which a container waits although its image is there.
var have = []string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError", kube.CrashLoop}

// What registries and runtimes answer if trying again is of no use, and what a full disk says.
var (
	refusals = regexp.MustCompile(`(?i)not found|manifest unknown|does not exist|no match for platform|no such host|denied|unauthorized|forbidden|` +
		`authentication required|no basic auth|invalid reference|not present with pull policy`)
	noRoom = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded|DiskPressure|ephemeral-storage`)
)

// judgePull reads what the kubelet reports of one container. was is what was known of its image before: the back-off of an older kubelet has lost the
// answer of the registry.
func judgePull(s corev1.ContainerStatus, was answer, now time.Time) answer {
	w := s.State.Waiting
	switch {
	case s.State.Running != nil || s.State.Terminated != nil:
		return answer{state: pulled}
	case w == nil || slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, w.Reason):
		return was
	case slices.Contains(have, w.Reason):
		return answer{state: pulled}
	}
	is := answer{pullFails, strings.TrimSuffix(w.Reason+": "+w.Message, ": "), now}
	if w.Reason == "ImagePullBackOff" && was.text != "" {
		is.text = was.text
	}
	if was.state == pullFails {
		is.since = was.since
	}
	switch {
	case noRoom.MatchString(is.text):
		is.state = pullFull
	case refusals.MatchString(is.text), w.Reason == "ErrImageNeverPull", w.Reason == "InvalidImageName":
		is.state = pullRefused
	}
	return is
}
