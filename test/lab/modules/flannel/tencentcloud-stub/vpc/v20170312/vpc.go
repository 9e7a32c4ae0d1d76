// SPDX-License-Identifier: Apache-2.0

// Package v20170312 lets flannel's Tencent Cloud back-end compile where that SDK cannot be had. Every call is refused.
package v20170312

import "errors"

var errLeftOut = errors.New("the Tencent Cloud back-end is left out of this build of flannel")

// Client refuses every call.
type Client struct{}

// NewClientWithSecretId returns a client that refuses every call.
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

// DescribeRouteTablesResponseParams is the answer's content.
type DescribeRouteTablesResponseParams struct{ RouteTableSet []*RouteTable }

// DescribeRouteTablesResponse answers DescribeRouteTablesRequest.
type DescribeRouteTablesResponse struct {
	Response *DescribeRouteTablesResponseParams
}

// DeleteRoutesRequest asks to delete routes.
type DeleteRoutesRequest struct {
	RouteTableId *string
	Routes       []*Route
}

// DeleteRoutesResponse answers DeleteRoutesRequest.
type DeleteRoutesResponse struct{}

// CreateRoutesRequest asks to create routes.
type CreateRoutesRequest struct {
	RouteTableId *string
	Routes       []*Route
}

// CreateRoutesResponse answers CreateRoutesRequest.
type CreateRoutesResponse struct{}

// NewDescribeRouteTablesRequest returns an empty request.
func NewDescribeRouteTablesRequest() *DescribeRouteTablesRequest {
	return &DescribeRouteTablesRequest{}
}

// NewDeleteRoutesRequest returns an empty request.
func NewDeleteRoutesRequest() *DeleteRoutesRequest { return &DeleteRoutesRequest{} }

// NewCreateRoutesRequest returns an empty request.
func NewCreateRoutesRequest() *CreateRoutesRequest { return &CreateRoutesRequest{} }

// DescribeRouteTables refuses.
func (*Client) DescribeRouteTables(*DescribeRouteTablesRequest) (*DescribeRouteTablesResponse, error) {
	return nil, errLeftOut
}

// DeleteRoutes refuses.
func (*Client) DeleteRoutes(*DeleteRoutesRequest) (*DeleteRoutesResponse, error) {
	return nil, errLeftOut
}

// CreateRoutes refuses.
func (*Client) CreateRoutes(*CreateRoutesRequest) (*CreateRoutesResponse, error) {
	return nil, errLeftOut
}
