// SPDX-License-Identifier: Apache-2.0

package catalog

import "yunion.io/x/ocadm/operatorctl/component"

func s3gateway() component.Component {
	return service(30884, component.Component{
		Name: "s3gateway", Summary: "one interface to the object storage of many clouds",
		Products: notOnSite,
		Gate:     func(s component.Spec) string { return unless(s.EnableS3Gateway, "spec.enableS3Gateway is not set") },
		Image:    component.Image{Name: "s3gateway"},
		Config:   &component.Config{Groups: noDatabase},
		Account:  &component.Account{User: "s3gatewayadm"},
	})
}
