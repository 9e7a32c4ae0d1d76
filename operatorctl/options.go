// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"log/slog"
	"time"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
)

// Options of a running operator.
type Options struct {
	// Namespace of the leader election lease.
	Namespace string
	// Namespaces whose clouds are looked after, the only ones where rights are needed; none means all.
	Namespaces []string
	// Image is the operator's own, which the jobs of clouds run from, too.
	Image string
	// Components are the catalogue of this build, nil for the usual one: a test runs another build.
	Components []component.Component
	// WithoutNodes keeps it from reading nodes: Run sets it where it may not. Then it cannot say which ones are lost.
	WithoutNodes bool
	// WithoutOperations keeps it from running operations: Run sets it where it may not, or where they are not defined.
	WithoutOperations bool
	// WithoutMachines keeps it from bringing machines into the cluster: Run sets it where it may not, or where they are not defined.
	WithoutMachines bool
	// Silence is how long a program that runs an operation may give no sign; 0 means operation.DefaultSilence.
	Silence time.Duration
	// WithoutJobs lets this process do the work on machines: Run sets it where it may not create Jobs, or does not know its own image.
	WithoutJobs bool
	// MachinesAtOnce is how many machines of a cloud are worked on at once; 0 means operation.DefaultMachinesAtOnce.
	MachinesAtOnce int
	// LeaderElection makes several operators take turns.
	LeaderElection bool
	// MetricsAddress, HealthAddress and ProfileAddress (of Go's profiler) to listen on; "0" turns one off.
	MetricsAddress, HealthAddress, ProfileAddress string
	// Audit is how often what lies outside Kubernetes is verified again; 0 means reconcile.DefaultAudit, negative never.
	Audit time.Duration
	// AtOnce lets a changed spec.version move all components at once. Else it creates an operation, and only operations move a cloud that has run.
	AtOnce bool
	// Settle is how long a wave of an operation must serve without interruption; 0 means operation.DefaultSettle.
	Settle time.Duration
	// Options are how the databases and the services are reached.
	effects.Options
	// Grace bounds an orderly stop; 0 means two seconds. What has not ended by then is cut off, and the next leader waits for the lease.
	Grace time.Duration
	// UserAgent of requests to the API server.
	UserAgent string
	Log       *slog.Logger
}

// jobImage is the image of Jobs, "" where there can be none.
func jobImage(o Options) string {
	if o.WithoutJobs {
		return ""
	}
	return o.Image
}
