package bbs

import (
	"context"
	"fmt"
	"time"
)

// DesiredLRPFilter restricts a list of desired LRPs; the zero value does not.
type DesiredLRPFilter struct {
	// Domain, if not empty, is that of the LRPs.
	Domain string
	// ProcessGuids, if there are any, are those of the LRPs.
	ProcessGuids []string
	// AppGuids, if there are any, are those of the apps that the LRPs belong to. Only [Client.DesiredLRPs] heeds them.
	AppGuids []string
}

func (f DesiredLRPFilter) request() *desiredLRPsRequest {
	return &desiredLRPsRequest{Domain: f.Domain, ProcessGuids: f.ProcessGuids, AppGuids: f.AppGuids}
}

// ActualLRPFilter restricts a list of instances; the zero value does not.
type ActualLRPFilter struct {
	// Domain, CellID and ProcessGuid, each if it is not empty, are those of the instances.
	Domain, CellID, ProcessGuid string
	// Index, if it is not nil, is that of the instances.
	Index *int32
}

// Ping returns an error if the BBS does not serve.
func (c *Client) Ping(ctx context.Context) error {
	var response pingResponse
	if err := c.call(ctx, "ping", nil, &response); err != nil {
		return err
	}
	if !response.Available {
		return &StatusError{Code: 200, Body: "it is not available"}
	}
	return nil
}

// DesireLRP creates a desired LRP. If it names no definition, the BBS generates an id for it.
// [ErrResourceExists] if there is one with its process guid, [ErrInvalidRequest] with all that is wrong with it.
func (c *Client) DesireLRP(ctx context.Context, lrp *DesiredLRP) error {
	return c.change(ctx, "desired_lrp/desire.r2", &desireLRPRequest{DesiredLRP: lrp})
}

// DesiredLRPByProcessGuid returns a desired LRP. While an update is under way, its PreviousDefinitionID is not empty.
// [ErrResourceNotFound] if there is none with the process guid.
func (c *Client) DesiredLRPByProcessGuid(ctx context.Context, processGuid string) (*DesiredLRP, error) {
	var response desiredLRPResponse
	request := &desiredLRPByProcessGuidRequest{ProcessGuid: processGuid}
	if err := c.call(ctx, "desired_lrps/get_by_process_guid.r3", request, &response); err != nil {
		return nil, err
	}
	return response.DesiredLRP, nil
}

// DesiredLRPs returns the desired LRPs that match a filter. Beside an error there may be some.
func (c *Client) DesiredLRPs(ctx context.Context, filter DesiredLRPFilter) ([]*DesiredLRP, error) {
	var response desiredLRPsResponse
	err := c.call(ctx, "desired_lrps/list.r3", filter.request(), &response)
	return response.DesiredLRPs, err
}

// DesiredLRPSchedulingInfos returns the scheduling infos of the desired LRPs that match a filter. During an update there are
// two for an LRP, that of the current definition first; each names its definition. Beside an error there may be some.
func (c *Client) DesiredLRPSchedulingInfos(ctx context.Context, filter DesiredLRPFilter) ([]*DesiredLRPSchedulingInfo, error) {
	var response desiredLRPSchedulingInfosResponse
	err := c.call(ctx, "desired_lrp_scheduling_infos/list.r1", filter.request(), &response)
	return response.DesiredLRPSchedulingInfos, err
}

// DesiredLRPSchedulingInfosByProcessGuid returns the scheduling infos of one desired LRP: two during an update, that of the
// current definition first. [ErrResourceNotFound] if there is none with the process guid.
func (c *Client) DesiredLRPSchedulingInfosByProcessGuid(ctx context.Context, processGuid string) ([]*DesiredLRPSchedulingInfo, error) {
	var response desiredLRPSchedulingInfosResponse
	request := &desiredLRPByProcessGuidRequest{ProcessGuid: processGuid}
	err := c.call(ctx, "desired_lrp_scheduling_infos/get_by_process_guid.r1", request, &response)
	return response.DesiredLRPSchedulingInfos, err
}

// UpdateDesiredLRP changes what the update names: instances, routes, annotation and metric tags at once. With a definition
// that is not the current one an update begins, which replaces the instances step by step, each once its successor
// runs and is routable. A definition replaces the whole one before: what it leaves out is deleted.
//
// [ErrUpdateInProgress] if an update to another definition is under way and not cancelled, [ErrDefinitionExists] if the LRP
// has another definition of the same id, [ErrResourceNotFound] if there is no LRP with the process guid.
func (c *Client) UpdateDesiredLRP(ctx context.Context, processGuid string, update *DesiredLRPUpdate) error {
	return c.change(ctx, "desired_lrp/update", &updateDesiredLRPRequest{ProcessGuid: processGuid, Update: update})
}

// CancelUpdateDesiredLRP makes the previous definition the current one again; what was replaced is replaced back.
// [ErrNoUpdateInProgress] if no update is under way.
func (c *Client) CancelUpdateDesiredLRP(ctx context.Context, processGuid string) error {
	return c.change(ctx, "desired_lrp/cancel_update", &cancelUpdateDesiredLRPRequest{ProcessGuid: processGuid})
}

// RollbackDesiredLRP begins an update to an archived definition. [ErrDefinitionNotFound] if the archive does not have it,
// [ErrUpdateInProgress] if another update is under way and not cancelled.
func (c *Client) RollbackDesiredLRP(ctx context.Context, processGuid, definitionID string) error {
	request := &rollbackDesiredLRPRequest{ProcessGuid: processGuid, DefinitionID: definitionID}
	return c.change(ctx, "desired_lrp/rollback", request)
}

// RemoveDesiredLRP removes a desired LRP, its definitions and its instances. [ErrResourceNotFound] if there is none with the
// process guid.
func (c *Client) RemoveDesiredLRP(ctx context.Context, processGuid string) error {
	return c.change(ctx, "desired_lrp/remove", &removeDesiredLRPRequest{ProcessGuid: processGuid})
}

// DesiredLRPUpdateStatus returns how far the update of a desired LRP is, or, without an update, which definition its
// instances run. [ErrResourceNotFound] if there is no LRP with the process guid.
func (c *Client) DesiredLRPUpdateStatus(ctx context.Context, processGuid string) (*DesiredLRPUpdateStatus, error) {
	var response desiredLRPUpdateStatusResponse
	request := &desiredLRPUpdateStatusRequest{ProcessGuid: processGuid}
	if err := c.call(ctx, "desired_lrp/update_status", request, &response); err != nil {
		return nil, err
	}
	return response.Status, nil
}

// LRPDefinitions returns the current, previous and archived definitions of a desired LRP, newest first.
// [ErrResourceNotFound] if there is no LRP with the process guid.
func (c *Client) LRPDefinitions(ctx context.Context, processGuid string) ([]*ArchivedLRPDefinition, error) {
	var response lrpDefinitionsResponse
	err := c.call(ctx, "desired_lrp/definitions/list", &lrpDefinitionsRequest{ProcessGuid: processGuid}, &response)
	return response.Definitions, err
}

// LRPDefinition returns one of the [Client.LRPDefinitions]. [ErrDefinitionNotFound] if the LRP does not have it, or not any
// more.
func (c *Client) LRPDefinition(ctx context.Context, processGuid, definitionID string) (*ArchivedLRPDefinition, error) {
	definitions, err := c.LRPDefinitions(ctx, processGuid)
	if err != nil {
		return nil, err
	}
	for _, found := range definitions {
		if found.Definition != nil && found.Definition.DefinitionID == definitionID {
			return found, nil
		}
	}
	message := fmt.Sprintf("%s has no definition %s", processGuid, definitionID)
	return nil, &Error{Type: ErrorTypeDefinitionNotFound, Message: message}
}

// ActualLRPs returns the instances that match a filter; each names its definition. Beside an error there may be some.
func (c *Client) ActualLRPs(ctx context.Context, filter ActualLRPFilter) ([]*ActualLRP, error) {
	var response actualLRPsResponse
	request := &actualLRPsRequest{
		Domain: filter.Domain, CellID: filter.CellID, ProcessGuid: filter.ProcessGuid, Index: filter.Index,
	}
	err := c.call(ctx, "actual_lrps/list", request, &response)
	return response.ActualLRPs, err
}

// change makes a call whose answer has nothing but an error, if there is one.
func (c *Client) change(ctx context.Context, path string, request any) error {
	return c.call(ctx, path, request, &desiredLRPLifecycleResponse{})
}

// PreviousDesiredLRPSchedulingInfo returns the scheduling info of the previous definition, which is given: a desired LRP has
// the id of its previous definition alone, and [Client.LRPDefinition] returns the definition.
func (d *DesiredLRP) PreviousDesiredLRPSchedulingInfo(previous *LRPDefinition) DesiredLRPSchedulingInfo {
	info := DesiredLRPSchedulingInfo{
		DesiredLRPKey: d.keyWith(previous),
		Annotation:    d.Annotation,
		Instances:     d.Instances,
		DesiredLRPResource: DesiredLRPResource{
			MemoryMb: previous.MemoryMb, DiskMb: previous.DiskMb, RootFs: previous.RootFs, MaxPids: previous.MaxPids,
		},
		VolumePlacement: &VolumePlacement{},
		PlacementTags:   previous.PlacementTags,
		DefinitionID:    previous.DefinitionID,
	}
	if d.Routes != nil {
		info.Routes = *d.Routes
	}
	if d.ModificationTag != nil {
		info.ModificationTag = *d.ModificationTag
	}
	for _, mount := range previous.VolumeMounts {
		info.VolumePlacement.DriverNames = append(info.VolumePlacement.DriverNames, mount.Driver)
	}
	return info
}

// PreviousDesiredLRPRunInfo returns the run info of the previous definition, which is given, as of a creation time.
func (d *DesiredLRP) PreviousDesiredLRPRunInfo(previous *LRPDefinition, createdAt time.Time) DesiredLRPRunInfo {
	return DesiredLRPRunInfo{
		DesiredLRPKey:                 d.keyWith(previous),
		EnvironmentVariables:          previous.EnvironmentVariables,
		Setup:                         previous.Setup,
		Action:                        previous.Action,
		Monitor:                       previous.Monitor,
		DeprecatedStartTimeoutS:       previous.DeprecatedStartTimeoutS,
		Privileged:                    previous.Privileged,
		CpuWeight:                     previous.CpuWeight,
		Ports:                         previous.Ports,
		EgressRules:                   previous.EgressRules,
		LogSource:                     previous.LogSource,
		MetricsGuid:                   previous.MetricsGuid,
		CreatedAt:                     createdAt.UnixNano(),
		CachedDependencies:            previous.CachedDependencies,
		LegacyDownloadUser:            previous.LegacyDownloadUser,
		TrustedSystemCertificatesPath: previous.TrustedSystemCertificatesPath,
		VolumeMounts:                  previous.VolumeMounts,
		Network:                       previous.Network,
		StartTimeoutMs:                previous.StartTimeoutMs,
		CertificateProperties:         previous.CertificateProperties,
		ImageUsername:                 previous.ImageUsername,
		ImagePassword:                 previous.ImagePassword,
		CheckDefinition:               previous.CheckDefinition,
		ImageLayers:                   previous.ImageLayers,
		MetricTags:                    previous.MetricTags,
		Sidecars:                      previous.Sidecars,
		LogRateLimit:                  previous.LogRateLimit,
		VolumeMountedFiles:            previous.VolumeMountedFiles,
		DefinitionID:                  previous.DefinitionID,
	}
}

func (d *DesiredLRP) keyWith(definition *LRPDefinition) DesiredLRPKey {
	return DesiredLRPKey{ProcessGuid: d.ProcessGuid, Domain: d.Domain, LogGuid: definition.LogGuid}
}
