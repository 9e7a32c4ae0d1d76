// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func s3gateway() component.Component {
	return component.Component{
		Name: "s3gateway", SpecKey: "s3gateway", StatusKey: "s3gateway", Summary: "one interface to the object storage of many clouds",
		Products: notOnSite,
		Gate: func(s component.Spec) string {
			return unless(s.EnableS3Gateway, "spec.enableS3Gateway is not set")
		},
		After:     []string{"keystone"},
		Workload:  component.Workload{Ping: true},
		Config:    &component.Config{Groups: noDatabase},
		Account:   &component.Account{User: "s3gatewayadm"},
		Service:   apiPort(30884),
		Endpoints: []component.Endpoint{{Service: "s3gateway", Type: "s3gateway"}},
	}
}
