// SPDX-License-Identifier: Apache-2.0

package operatorctl

import "yunion.io/x/ocadm/api/v1alpha1"

// labels of an object of this cloud that belongs to no component: credentials and certificates.
func (p *pass) labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelName:      v1alpha1.ValueName,
		v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy,
		v1alpha1.LabelInstance:  p.live.instance,
	}
}
