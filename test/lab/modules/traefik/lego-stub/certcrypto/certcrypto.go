// SPDX-License-Identifier: Apache-2.0

// Package certcrypto has the names of key types.
package certcrypto

// KeyType is the name of one.
type KeyType string

// The key types.
const (
	EC256   KeyType = "P256"
	EC384   KeyType = "P384"
	RSA2048 KeyType = "2048"
	RSA4096 KeyType = "4096"
	RSA8192 KeyType = "8192"
)
