// SPDX-License-Identifier: Apache-2.0

// Package v20170312 lets flannel's Tencent Cloud back-end compile without that SDK, which is not available. Every call fails.
package v20170312

import "errors"

var errLeftOut = errors.New("the Tencent Cloud back-end is left out of this build of flannel")

// Client fails every call.
type Client struct{}

// NewClientWithSecretId returns a client that fails every call.
func NewClientWithSecretId(_, _, _ string) (*Client, error) { return &Client{}, nil }

// Filter narrows a query.
type Filter struct {
	Name   *string
	Values []*string
}

// Route is one row of a routing table.
type Route struct {
	RouteId              *uint64
	DestinationCidrBlock *string
	GatewayType          *string
	GatewayId            *string
	RouteType            *string
	Enabled              *bool
}

// RouteTable is a routing table.
type RouteTable struct {
	RouteTableId *string
	RouteSet     []*Route
}

// DescribeRouteTablesRequest asks for routing tables.
type DescribeRouteTablesRequest struct{ Filters []*Filter }

// DescribeRouteTablesResponseParams is the content of the response.
type DescribeRouteTablesResponseParams struct{ RouteTableSet []*RouteTable }

// DescribeRouteTablesResponse is the response to DescribeRouteTablesRequest.
type DescribeRouteTablesResponse struct {
	Response *DescribeRouteTablesResponseParams
}

// DeleteRoutesRequest asks to delete routes.
type DeleteRoutesRequest struct {
	RouteTableId *string
	Routes       []*Route
}

// DeleteRoutesResponse is the response to DeleteRoutesRequest.
type DeleteRoutesResponse struct{}

// CreateRoutesRequest asks to create routes.
type CreateRoutesRequest struct {
	RouteTableId *string
	Routes       []*Route
}

// CreateRoutesResponse is the response to CreateRoutesRequest.
type CreateRoutesResponse struct{}

// NewDescribeRouteTablesRequest returns an empty request.
func NewDescribeRouteTablesRequest() *DescribeRouteTablesRequest {
	return &DescribeRouteTablesRequest{}
}

// NewDeleteRoutesRequest returns an empty request.
func NewDeleteRoutesRequest() *DeleteRoutesRequest { return &DeleteRoutesRequest{} }

// NewCreateRoutesRequest returns an empty request.
func NewCreateRoutesRequest() *CreateRoutesRequest { return &CreateRoutesRequest{} }

// DescribeRouteTables always fails.
func (*Client) DescribeRouteTables(*DescribeRouteTablesRequest) (*DescribeRouteTablesResponse, error) {
	return nil, errLeftOut
}

// DeleteRoutes always fails.
func (*Client) DeleteRoutes(*DeleteRoutesRequest) (*DeleteRoutesResponse, error) {
	return nil, errLeftOut
}

// CreateRoutes always fails.
func (*Client) CreateRoutes(*CreateRoutesRequest) (*CreateRoutesResponse, error) {
	return nil, errLeftOut
}
