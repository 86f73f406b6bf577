package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// spec is an OCI runtime specification, of which only what is looked at or changed has names here.
type spec struct {
	content map[string]any
	bundle  string
}

func (container *spec) object(path ...string) map[string]any {
	current := container.content
	for _, key := range path {
		next, found := current[key].(map[string]any)
		if !found {
			next = map[string]any{}
			current[key] = next
		}
		current = next
	}
	return current
}

func (container *spec) root() string {
	path, _ := container.object("root")["path"].(string)
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(container.bundle, path)
}

func (container *spec) variable(name, otherwise string) string {
	value := otherwise
	variables, _ := container.object("process")["env"].([]any)
	for _, variable := range variables {
		if found, given := strings.CutPrefix(fmt.Sprint(variable), name+"="); given {
			value = found
		}
	}
	return value
}

// isCapable says whether the container asks for a part of the driver; what it has without a word is the default.
func (container *spec) isCapable(part string) bool {
	given := strings.Split(container.variable("NVIDIA_DRIVER_CAPABILITIES", "utility,compute"), ",")
	return slices.Contains(given, part) || slices.Contains(given, "all")
}

// wanted returns the devices that the container asks for: annotations come before mounts, mounts before variables.
// The toolkit's defaults hold: mounts count, and so do variables of containers without privileges.
func (container *spec) wanted(withAnnotations bool) []string {
	if names := container.annotated(); withAnnotations && len(names) > 0 {
		return names
	}
	if names := container.mounted(); len(names) > 0 {
		return names
	}
	value := container.variable(visibleDevices, "")
	if value == "" && container.variable("CUDA_VERSION", "") != "" && container.variable("NVIDIA_REQUIRE_CUDA", "") == "" {
		value = "all" // images of CUDA's first years
	}
	var names []string
	for _, name := range strings.Split(value, ",") {
		if name = strings.TrimSpace(name); name == "void" {
			return nil
		} else if name != "" && name != mountsFolder {
			names = append(names, name)
		}
	}
	return names
}

func (container *spec) annotated() []string {
	var names []string
	for key, value := range container.object("annotations") {
		if strings.HasPrefix(key, "cdi.k8s.io/") {
			names = append(names, strings.Split(fmt.Sprint(value), ",")...)
		}
	}
	sort.Strings(names)
	return names
}

// mounted returns what mounts of /dev/null below the folder name; a MIG instance may be a path of several parts.
func (container *spec) mounted() []string {
	var names []string
	mounts, _ := container.content["mounts"].([]any)
	for _, one := range mounts {
		mount, _ := one.(map[string]any)
		destination := filepath.Clean(fmt.Sprint(mount["destination"]))
		name, inside := strings.CutPrefix(destination, mountsFolder+"/")
		if !inside || mount["source"] != "/dev/null" {
			continue
		}
		if parts := strings.Split(name, "/"); len(parts) == 4 && parts[0] == "cdi" {
			name = parts[1] + "/" + parts[2] + "=" + parts[3]
		}
		names = append(names, name)
	}
	return names
}

func (container *spec) addMount(source, destination string) {
	mounts, _ := container.content["mounts"].([]any)
	for _, one := range mounts {
		if mount, _ := one.(map[string]any); mount["destination"] == destination {
			return
		}
	}
	options := []any{"ro", "nosuid", "nodev", "rbind", "rprivate"}
	mount := map[string]any{"source": source, "destination": destination, "type": "bind", "options": options}
	container.content["mounts"] = append(mounts, mount)
}

func (container *spec) addVariables(variables []string) {
	process := container.object("process")
	given, _ := process["env"].([]any)
	for _, variable := range variables {
		name, _, _ := strings.Cut(variable, "=")
		given = slices.DeleteFunc(given, func(one any) bool { return strings.HasPrefix(fmt.Sprint(one), name+"=") })
		given = append(given, variable)
	}
	process["env"] = given
}

// addNodes makes the nodes in the container and allows them to its cgroup.
func (container *spec) addNodes(nodes []Node) {
	linux, resources := container.object("linux"), container.object("linux", "resources")
	devices, _ := linux["devices"].([]any)
	rules, _ := resources["devices"].([]any)
	for _, node := range nodes {
		if hasPath(devices, node.Path) {
			continue
		}
		devices = append(devices, map[string]any{
			"path": node.Path, "type": "c", "major": node.Major, "minor": node.Minor, "fileMode": 0o666, "uid": 0, "gid": 0,
		})
		rules = append(rules, map[string]any{
			"allow": true, "type": "c", "major": node.Major, "minor": node.Minor, "access": "rw",
		})
	}
	linux["devices"], resources["devices"] = devices, rules
}

func hasPath(devices []any, path string) bool {
	for _, one := range devices {
		if device, _ := one.(map[string]any); device["path"] == path {
			return true
		}
	}
	return false
}

// edits are what a CDI spec does to a container; the parts that the lab's specs have.
type edits struct {
	Env         []string `json:"env"`
	DeviceNodes []Node   `json:"deviceNodes"`
	Mounts      []struct {
		HostPath      string `json:"hostPath"`
		ContainerPath string `json:"containerPath"`
	} `json:"mounts"`
}

type cdiSpec struct {
	Kind    string `json:"kind"`
	Common  edits  `json:"containerEdits"`
	Devices []struct {
		Name  string `json:"name"`
		Edits edits  `json:"containerEdits"`
	} `json:"devices"`
}

// injectNames adds devices by their names in the CDI specs of a folder.
func injectNames(folder string, container *spec, names []string) error {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	found := map[string]edits{}
	common := map[string]edits{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var known cdiSpec
		if err := json.Unmarshal(text, &known); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, device := range known.Devices {
			name := known.Kind + "=" + device.Name
			found[name], common[name] = device.Edits, known.Common
		}
	}
	for _, name := range names {
		edit, resolved := found[name]
		if !resolved {
			return fmt.Errorf("unresolvable CDI devices %s", name)
		}
		container.edit(edit)
		container.edit(common[name])
	}
	return nil
}

func (container *spec) edit(edit edits) {
	container.addVariables(edit.Env)
	container.addNodes(edit.DeviceNodes)
	for _, mount := range edit.Mounts {
		container.addMount(mount.HostPath, mount.ContainerPath)
	}
}
