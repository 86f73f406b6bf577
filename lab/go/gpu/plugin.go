package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	visibleDevices = "NVIDIA_VISIBLE_DEVICES"
	mountsFolder   = "/var/run/nvidia-container-devices"
	prefix         = "k8spilot-lab-"
	patience       = 5 * time.Second
)

// plugin serves one resource.
type plugin struct {
	api.UnimplementedDevicePluginServer
	table    *Table
	resource Resource
	end      chan struct{}
}

var allocations atomic.Int64

// servePlugins registers every resource with the kubelet, and again whenever the kubelet has started anew.
func servePlugins(path string) error {
	table, err := readTable(path)
	if err != nil {
		return err
	}
	var last uint64
	var servers []func()
	for ; ; time.Sleep(100 * time.Millisecond) {
		current := inode(api.KubeletSocket)
		if current == last || current == 0 {
			continue
		}
		for _, stop := range servers {
			stop()
		}
		if servers, err = registerAll(table); err != nil {
			log.Print(err)
			continue // with the same socket: the kubelet has made it, and does not answer yet
		}
		last = current
		log.Printf("registered %d resources", len(servers))
	}
}

func inode(path string) uint64 {
	var status syscall.Stat_t
	if syscall.Stat(path, &status) != nil {
		return 0
	}
	return status.Ino<<20 ^ uint64(status.Ctim.Nano())
}

func registerAll(table *Table) ([]func(), error) {
	var servers []func()
	for _, resource := range table.Resources {
		stop, err := serve(table, resource)
		if err != nil {
			return servers, err
		}
		servers = append(servers, stop)
	}
	return servers, nil
}

func serve(table *Table, resource Resource) (func(), error) {
	endpoint := prefix + strings.NewReplacer("/", "-", ".", "-").Replace(resource.Name) + ".sock"
	socket := filepath.Join(api.DevicePluginPath, endpoint)
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return func() {}, err
	}
	one := &plugin{table: table, resource: resource, end: make(chan struct{})}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, one)
	go func() { _ = server.Serve(listener) }()
	stop := func() { close(one.end); server.Stop() }
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return stop, err
	}
	defer connection.Close()
	limit, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: resource.Name}
	if _, err := api.NewRegistrationClient(connection).Register(limit, request); err != nil {
		stop()
		return func() {}, fmt.Errorf("%s: %w", resource.Name, err)
	}
	return stop, nil
}

func (one *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch tells of the devices, which are always healthy.
func (one *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	var devices []*api.Device
	for _, id := range one.resource.IDs {
		devices = append(devices, &api.Device{ID: id, Health: api.Healthy})
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	select {
	case <-one.end:
	case <-stream.Context().Done():
	}
	return nil
}

// Allocate answers as NVIDIA's plugin does with the strategies of the resource.
func (one *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		allocated, err := one.allocate(container.DevicesIds)
		if err != nil {
			return nil, err
		}
		log.Printf("%s: %s", one.resource.Name, strings.Join(container.DevicesIds, " "))
		answer.ContainerResponses = append(answer.ContainerResponses, allocated)
	}
	return answer, nil
}

func (one *plugin) allocate(ids []string) (*api.ContainerAllocateResponse, error) {
	names, nodes, err := one.resolve(ids)
	if err != nil {
		return nil, err
	}
	answer := &api.ContainerAllocateResponse{Envs: map[string]string{}, Annotations: map[string]string{}}
	for _, list := range one.resource.Lists {
		switch list {
		case "envvar":
			answer.Envs[visibleDevices] = strings.Join(names, ",")
		case "volume-mounts":
			answer.Envs[visibleDevices] = mountsFolder
			for _, name := range names {
				answer.Mounts = append(answer.Mounts, &api.Mount{HostPath: "/dev/null", ContainerPath: mountsFolder + "/" + name})
			}
		case "cdi-annotations":
			key := fmt.Sprintf("cdi.k8s.io/nvidia-device-plugin_%d", allocations.Add(1))
			answer.Annotations[key] = strings.Join(one.qualified(names), ",")
		case "cdi-cri":
			for _, name := range one.qualified(names) {
				answer.CdiDevices = append(answer.CdiDevices, &api.CDIDevice{Name: name})
			}
		default:
			return nil, fmt.Errorf("there is no device list strategy %q", list)
		}
	}
	if one.resource.DeviceSpecs {
		for _, node := range append(nodes, one.table.Control...) {
			spec := &api.DeviceSpec{ContainerPath: node.Path, HostPath: node.Path, Permissions: "rw"}
			answer.Devices = append(answer.Devices, spec)
		}
	}
	if one.resource.Library {
		answer.Mounts = append(answer.Mounts,
			&api.Mount{HostPath: one.table.Library, ContainerPath: multiarch + "/libnvidia-ml.so.1", ReadOnly: true},
			&api.Mount{HostPath: one.table.Settings, ContainerPath: settingsFolder, ReadOnly: true})
	}
	return answer, nil
}

// resolve returns what the lists have for the kubelet's ids, each once, and the devices' nodes.
func (one *plugin) resolve(ids []string) (names []string, nodes []Node, err error) {
	for i, id := range ids {
		uuid, _, _ := strings.Cut(id, "::")
		device, known := one.table.find(uuid)
		if !known {
			return nil, nil, fmt.Errorf("%s has no device %s", one.resource.Name, id)
		}
		name := device.UUID
		if one.resource.ByIndex {
			name = device.Index
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if one.resource.Instead != "" && i == len(ids)-1 {
			device, _ = one.table.find(one.resource.Instead)
		}
		for _, node := range device.Nodes {
			if !slices.Contains(nodes, node) {
				nodes = append(nodes, node)
			}
		}
	}
	return names, nodes, nil
}

func (one *plugin) qualified(names []string) []string {
	var answer []string
	for _, name := range names {
		answer = append(answer, one.table.Kind+"="+name)
	}
	return answer
}
