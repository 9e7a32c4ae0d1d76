// SPDX-License-Identifier: Apache-2.0

// Package docs checks the pages in this directory: that links lead somewhere, that pages are short, and that the Chinese pages in docs/zh
// are translations of the English pages as they are. Only tests use it.
package docs
