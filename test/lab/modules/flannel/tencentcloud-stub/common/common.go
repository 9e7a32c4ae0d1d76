// SPDX-License-Identifier: Apache-2.0

// Package common lets flannel's Tencent Cloud back-end compile where that SDK cannot be had. It is no SDK.
package common

// StringPtr returns a pointer to a copy of v.
func StringPtr(v string) *string { return &v }

// BoolPtr returns a pointer to a copy of v.
func BoolPtr(v bool) *bool { return &v }

// StringPtrs returns pointers to copies of the values.
func StringPtrs(vs []string) []*string {
	ptrs := make([]*string, len(vs))
	for i, v := range vs {
		ptrs[i] = &v
	}
	return ptrs
}
