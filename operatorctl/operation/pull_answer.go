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

// answer is the result of pulling an image so far.
type answer struct {
	state pullState
	// text is the kubelet's message, since is when the pull first failed.
	text  string
	since time.Time
}

type pullState int

const (
	// pullPending: the kubelet has not reported on it yet.
	pullPending pullState = iota
	// pullFails: it cannot be pulled now. The kubelet retries.
	pullFails
	// pullRefused: retrying will not help.
	pullRefused
	// pullFull: the node has no room for it.
	pullFull
	// pulled: the node has it.
	pulled
	// pullLeft: its node accepts no pod, which is not the image's fault.
	pullLeft
)

// over reports whether the answer is final.
func (a answer) over() bool { return a.state > pullFails }

// pullAgain is how long an image may fail for a reason that may be temporary.
const pullAgain = time.Minute

// have are the waiting reasons of containers whose image is present.
var have = []string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError", kube.CrashLoop}

// Answers of registries and runtimes for which retrying is useless, and messages of a full disk.
var (
	refusals = regexp.MustCompile(`(?i)not found|manifest unknown|does not exist|no match for platform|no such host|denied|unauthorized|forbidden|` +
		`authentication required|no basic auth|invalid reference|not present with pull policy`)
	noRoom = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded|DiskPressure|ephemeral-storage`)
)

// judgePull evaluates the kubelet's report on one container. was is the earlier answer for its image: the back-off message of an older kubelet omits the
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
