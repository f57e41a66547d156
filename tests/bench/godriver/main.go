// Command godriver is the Go half of the benchmark: a small DRA driver on k8s.io/dynamic-resource-allocation whose
// devices are made up. README.md says what it does and what it leaves out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
)

// settings are the command line.
type settings struct {
	driverName  string
	nodeName    string
	kubeconfig  string
	registryDir string
	pluginDir   string
	cdiDir      string
	devices     int
	writeAhead  bool
}

func main() {
	set, err := parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		err = run(ctx, set)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "godriver:", err)
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	set := settings{}
	flags := flag.NewFlagSet("godriver", flag.ContinueOnError)
	flags.StringVar(&set.driverName, "driver-name", "", "name of the driver")
	flags.StringVar(&set.nodeName, "node-name", "", "name of the node, which is also the pool")
	flags.StringVar(&set.kubeconfig, "kubeconfig", "", "kubeconfig file; by default the pod's service account")
	flags.StringVar(&set.registryDir, "registry-dir", kubeletplugin.KubeletRegistryDir, "where the kubelet looks for drivers")
	flags.StringVar(&set.pluginDir, "plugin-dir", "", "the driver's own directory; by default below the kubelet's")
	flags.StringVar(&set.cdiDir, "cdi-dir", "/var/run/cdi", "where CDI specs are written")
	flags.IntVar(&set.devices, "devices", 8, "how many devices to publish")
	flags.BoolVar(&set.writeAhead, "write-ahead", false, "also write the checkpoint before a claim's CDI spec")
	klog.InitFlags(flags)
	if err := flags.Parse(args); err != nil {
		return set, err
	}
	if flags.NArg() > 0 {
		return set, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if set.driverName == "" || set.nodeName == "" {
		return set, errors.New("--driver-name and --node-name are required")
	}
	if set.pluginDir == "" {
		set.pluginDir = filepath.Join(kubeletplugin.KubeletPluginsDir, set.driverName)
	}
	return set, nil
}

// run serves until the context ends or the helper reports that it cannot go on.
func run(ctx context.Context, set settings) error {
	for _, directory := range []string{set.pluginDir, set.cdiDir} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return err
		}
	}
	client, err := connect(set.kubeconfig)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	driver, err := newDriver(set, cancel)
	if err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, driver,
		kubeletplugin.DriverName(set.driverName),
		kubeletplugin.NodeName(set.nodeName),
		kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(set.registryDir),
		kubeletplugin.PluginDataDirectoryPath(set.pluginDir),
	)
	if err != nil {
		return fmt.Errorf("start the kubelet plugin: %w", err)
	}
	defer helper.Stop()
	if err := helper.PublishResources(ctx, resources(set.nodeName, set.devices)); err != nil {
		return fmt.Errorf("publish devices: %w", err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); errors.Is(cause, errFatal) {
		return cause
	}
	return nil
}

// connect returns a client that is as quick as client-go can be: protobuf, and no limit of its own on requests.
func connect(kubeconfig string) (kubernetes.Interface, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(config)
}
