// Command dra-driver is a driver for dynamic resource allocation (resource.k8s.io/v1) that publishes the devices of a table,
// and gives them to containers by CDI. The table is made in lab/gpu/dra.py: everything of a vendor is there.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	api "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// Table is what the driver has to give.
type Table struct {
	Driver  string                     `json:"driver"`
	Kind    string                     `json:"kind"`    // vendor/class of the CDI names
	Version string                     `json:"version"` // of the CDI specification
	Devices []api.Device               `json:"devices"`
	Edits   map[string]json.RawMessage `json:"edits"`  // CDI's containerEdits, by the device's name
	Common  json.RawMessage            `json:"common"` // the containerEdits of every container with a device
}

// driver serves the kubelet. It keeps nothing in memory: a claim that is prepared is a CDI spec in the folder.
type driver struct {
	table Table
	specs string
	end   context.CancelFunc
}

func main() {
	table := flag.String("table", "", "file with the devices")
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	node := flag.String("node", "", "name of the node")
	kubelet := flag.String("kubelet", "", "root folder of the kubelet")
	specs := flag.String("specs", "", "folder of the CDI specs")
	flag.Parse()
	if err := serve(*table, *kubeconfig, *node, *kubelet, *specs); err != nil {
		log.Fatal(err)
	}
}

// serve registers the driver with the kubelet and publishes its devices, until it is told to end.
func serve(table, kubeconfig, node, kubelet, specs string) error {
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer end()
	text, err := os.ReadFile(table)
	if err != nil {
		return err
	}
	one := &driver{specs: specs, end: end}
	if err := json.Unmarshal(text, &one.table); err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	data := filepath.Join(kubelet, "plugins", one.table.Driver)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, one,
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(node),
		kubeletplugin.DriverName(one.table.Driver),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(kubelet, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: one.table.Devices}}}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
	if err := helper.PublishResources(ctx, resources); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// PrepareResourceClaims writes one CDI spec for each claim, as NVIDIA's driver does.
func (one *driver) PrepareResourceClaims(
	_ context.Context, claims []*api.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := one.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (one *driver) prepare(claim *api.ResourceClaim) ([]kubeletplugin.Device, error) {
	type named struct {
		Name  string          `json:"name"`
		Edits json.RawMessage `json:"containerEdits"`
	}
	devices, known := []named{}, []kubeletplugin.Device{}
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != one.table.Driver {
			continue
		}
		edits, found := one.table.Edits[result.Device]
		if !found {
			return nil, fmt.Errorf("the table has no device %s", result.Device)
		}
		name := fmt.Sprintf("%s-%s", claim.UID, result.Device)
		devices = append(devices, named{name, edits})
		known = append(known, kubeletplugin.Device{
			Requests:     []string{result.Request},
			PoolName:     result.Pool,
			DeviceName:   result.Device,
			CDIDeviceIDs: []string{one.table.Kind + "=" + name},
		})
	}
	spec := map[string]any{
		"cdiVersion": one.table.Version, "kind": one.table.Kind, "devices": devices, "containerEdits": one.table.Common,
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	fresh := one.path(claim.UID) + ".new" // containerd reads *.json alone
	if err := os.WriteFile(fresh, text, 0o644); err != nil {
		return nil, err
	}
	return known, os.Rename(fresh, one.path(claim.UID))
}

// UnprepareResourceClaims removes the claims' CDI specs.
func (one *driver) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(one.path(claim.UID))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		results[claim.UID] = err
	}
	return results, nil
}

func (one *driver) path(claim types.UID) string {
	return filepath.Join(one.specs, fmt.Sprintf("%s-%s.json", one.table.Driver, claim))
}

// HandleError logs what fails in the background, and ends the driver if it can not go on.
func (one *driver) HandleError(_ context.Context, err error, message string) {
	log.Printf("%s: %v", message, err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		one.end()
	}
}
