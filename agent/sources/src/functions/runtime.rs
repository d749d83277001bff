//! Functions of CUDA and HIP, runtime and driver, that neither issue collectives nor wait: their
//! calls are counted or measured, and are no events.
//!
//! The names are those that programs link: newer CUDA headers replace `cuMemAlloc` by
//! `cuMemAlloc_v2`, and with a default stream per thread `cudaMemcpyAsync` by
//! `cudaMemcpyAsync_ptsz`.

use fleet_agent_bpf::layout::{ArgumentIndexes, flag};
use fleet_agent_core::event::Direction::{self, ToDevice, ToHost, Unspecified, WithinDevice};

use crate::functions::argument_index::{ALLOCATING, COPYING, COPYING_ONE_WAY};
use crate::functions::spec::Family::{Driver, Runtime};
use crate::functions::spec::GraphChange::{
    self, BeginCapture, Destroy, EndCapture, Instantiate, Update,
};
use crate::functions::spec::{Effect, Family, Function, ProbeWhen};

/// Function that is measured.
const fn measured(
    family: Family,
    name: &'static str,
    effect: Effect,
    arguments: ArgumentIndexes,
) -> Function {
    Function {
        name,
        family,
        probe_when: ProbeWhen::Always,
        effect,
        one_way: None,
        flags: flag::QUIET | flag::RUNTIME,
        arguments,
    }
}

const fn allocate(family: Family, name: &'static str) -> Function {
    measured(family, name, Effect::Allocates, ALLOCATING)
}

const fn free(family: Family, name: &'static str) -> Function {
    measured(family, name, Effect::Frees, ArgumentIndexes::NONE)
}

const fn graph(family: Family, name: &'static str, change: GraphChange) -> Function {
    let effect = Effect::ChangesGraph(change);
    measured(family, name, effect, ArgumentIndexes::NONE)
}

/// Copy of the runtime, counted or measured.
const fn copy(name: &'static str) -> Function {
    Function {
        probe_when: ProbeWhen::Copies,
        flags: flag::COUNTS,
        ..measured(Runtime, name, Effect::Copies, COPYING)
    }
}

/// Copy of the driver, or of HIP in one direction. A runtime may call it, so it is measured or not
/// probed.
const fn copy_one_way(family: Family, name: &'static str, direction: Direction) -> Function {
    Function {
        probe_when: ProbeWhen::MeasuredCopies,
        one_way: Some(direction),
        ..measured(family, name, Effect::Copies, COPYING_ONE_WAY)
    }
}

/// Launch of a kernel by the runtime, counted or measured. `size` tells where its arguments have
/// the sizes of grid and block.
const fn launch(name: &'static str, size: u16) -> Function {
    Function {
        probe_when: ProbeWhen::Launches,
        flags: flag::COUNTS | size,
        ..measured(Runtime, name, Effect::Launches, ArgumentIndexes::NONE)
    }
}

/// Launch of a kernel by the driver, which a runtime may call.
const fn driver_launch(name: &'static str, size: u16) -> Function {
    Function {
        probe_when: ProbeWhen::MeasuredLaunches,
        flags: flag::QUIET | flag::RUNTIME | size,
        ..measured(Driver, name, Effect::Launches, ArgumentIndexes::NONE)
    }
}

const fn launch_graph(name: &'static str) -> Function {
    Function {
        probe_when: ProbeWhen::GraphLaunches,
        flags: flag::COUNTS,
        ..measured(Runtime, name, Effect::LaunchesGraph, ArgumentIndexes::NONE)
    }
}

const fn driver_launch_graph(name: &'static str) -> Function {
    Function {
        probe_when: ProbeWhen::MeasuredLaunches,
        ..measured(Driver, name, Effect::LaunchesGraph, ArgumentIndexes::NONE)
    }
}

/// All of them.
pub(super) const RUNTIME: [Function; 104] = [
    copy("cudaMemcpy"),
    copy("cudaMemcpy_ptds"),
    copy("cudaMemcpyAsync"),
    copy("cudaMemcpyAsync_ptsz"),
    copy("hipMemcpy"),
    copy("hipMemcpyAsync"),
    copy("hipMemcpyWithStream"),
    copy_one_way(Runtime, "hipMemcpyHtoD", ToDevice),
    copy_one_way(Runtime, "hipMemcpyHtoDAsync", ToDevice),
    copy_one_way(Runtime, "hipMemcpyDtoH", ToHost),
    copy_one_way(Runtime, "hipMemcpyDtoHAsync", ToHost),
    copy_one_way(Driver, "cuMemcpy", Unspecified),
    copy_one_way(Driver, "cuMemcpy_ptds", Unspecified),
    copy_one_way(Driver, "cuMemcpyAsync", Unspecified),
    copy_one_way(Driver, "cuMemcpyAsync_ptsz", Unspecified),
    copy_one_way(Driver, "cuMemcpyHtoD_v2", ToDevice),
    copy_one_way(Driver, "cuMemcpyHtoD_v2_ptds", ToDevice),
    copy_one_way(Driver, "cuMemcpyHtoDAsync_v2", ToDevice),
    copy_one_way(Driver, "cuMemcpyHtoDAsync_v2_ptsz", ToDevice),
    copy_one_way(Driver, "cuMemcpyDtoH_v2", ToHost),
    copy_one_way(Driver, "cuMemcpyDtoH_v2_ptds", ToHost),
    copy_one_way(Driver, "cuMemcpyDtoHAsync_v2", ToHost),
    copy_one_way(Driver, "cuMemcpyDtoHAsync_v2_ptsz", ToHost),
    copy_one_way(Driver, "cuMemcpyDtoD_v2", WithinDevice),
    copy_one_way(Driver, "cuMemcpyDtoD_v2_ptds", WithinDevice),
    copy_one_way(Driver, "cuMemcpyDtoDAsync_v2", WithinDevice),
    copy_one_way(Driver, "cuMemcpyDtoDAsync_v2_ptsz", WithinDevice),
    launch("cudaLaunchKernel", flag::SIZE_PACKED),
    launch("cudaLaunchKernel_ptsz", flag::SIZE_PACKED),
    launch("cudaLaunchKernelExC", flag::SIZE_BEHIND),
    launch("cudaLaunchKernelExC_ptsz", flag::SIZE_BEHIND),
    launch("hipLaunchKernel", flag::SIZE_PACKED),
    launch("hipModuleLaunchKernel", flag::SIZE_APART),
    // Its arguments are the threads of the grid and not the blocks.
    launch("hipExtModuleLaunchKernel", 0),
    driver_launch("cuLaunchKernel", flag::SIZE_APART),
    driver_launch("cuLaunchKernel_ptsz", flag::SIZE_APART),
    driver_launch("cuLaunchKernelEx", flag::SIZE_BEHIND),
    driver_launch("cuLaunchKernelEx_ptsz", flag::SIZE_BEHIND),
    launch_graph("cudaGraphLaunch"),
    launch_graph("cudaGraphLaunch_ptsz"),
    launch_graph("hipGraphLaunch"),
    driver_launch_graph("cuGraphLaunch"),
    driver_launch_graph("cuGraphLaunch_ptsz"),
    allocate(Runtime, "cudaMalloc"),
    allocate(Runtime, "cudaMallocManaged"),
    allocate(Runtime, "cudaMallocHost"),
    allocate(Runtime, "cudaHostAlloc"),
    allocate(Runtime, "cudaMallocAsync"),
    allocate(Runtime, "cudaMallocAsync_ptsz"),
    allocate(Runtime, "cudaMallocFromPoolAsync"),
    allocate(Runtime, "cudaMallocFromPoolAsync_ptsz"),
    allocate(Runtime, "hipMalloc"),
    allocate(Runtime, "hipMallocManaged"),
    allocate(Runtime, "hipHostMalloc"),
    allocate(Runtime, "hipMallocAsync"),
    allocate(Driver, "cuMemAlloc_v2"),
    allocate(Driver, "cuMemAllocManaged"),
    allocate(Driver, "cuMemAllocHost_v2"),
    allocate(Driver, "cuMemHostAlloc"),
    allocate(Driver, "cuMemAllocAsync"),
    allocate(Driver, "cuMemAllocAsync_ptsz"),
    allocate(Driver, "cuMemAllocFromPoolAsync"),
    allocate(Driver, "cuMemAllocFromPoolAsync_ptsz"),
    allocate(Driver, "cuMemCreate"),
    free(Runtime, "cudaFree"),
    free(Runtime, "cudaFreeHost"),
    free(Runtime, "cudaFreeAsync"),
    free(Runtime, "cudaFreeAsync_ptsz"),
    free(Runtime, "hipFree"),
    free(Runtime, "hipHostFree"),
    free(Runtime, "hipFreeAsync"),
    free(Driver, "cuMemFree_v2"),
    free(Driver, "cuMemFreeHost"),
    free(Driver, "cuMemFreeAsync"),
    free(Driver, "cuMemFreeAsync_ptsz"),
    free(Driver, "cuMemRelease"),
    graph(Runtime, "cudaStreamBeginCapture", BeginCapture),
    graph(Runtime, "cudaStreamBeginCapture_ptsz", BeginCapture),
    graph(Runtime, "hipStreamBeginCapture", BeginCapture),
    graph(Driver, "cuStreamBeginCapture_v2", BeginCapture),
    graph(Driver, "cuStreamBeginCapture_v2_ptsz", BeginCapture),
    graph(Runtime, "cudaStreamEndCapture", EndCapture),
    graph(Runtime, "cudaStreamEndCapture_ptsz", EndCapture),
    graph(Runtime, "hipStreamEndCapture", EndCapture),
    graph(Driver, "cuStreamEndCapture", EndCapture),
    graph(Driver, "cuStreamEndCapture_ptsz", EndCapture),
    graph(Runtime, "cudaGraphInstantiate", Instantiate),
    graph(Runtime, "cudaGraphInstantiateWithFlags", Instantiate),
    graph(Runtime, "cudaGraphInstantiateWithParams", Instantiate),
    graph(Runtime, "cudaGraphInstantiateWithParams_ptsz", Instantiate),
    graph(Runtime, "hipGraphInstantiate", Instantiate),
    graph(Runtime, "hipGraphInstantiateWithFlags", Instantiate),
    graph(Runtime, "hipGraphInstantiateWithParams", Instantiate),
    graph(Driver, "cuGraphInstantiate_v2", Instantiate),
    graph(Driver, "cuGraphInstantiateWithFlags", Instantiate),
    graph(Driver, "cuGraphInstantiateWithParams", Instantiate),
    graph(Driver, "cuGraphInstantiateWithParams_ptsz", Instantiate),
    graph(Runtime, "cudaGraphExecUpdate", Update),
    graph(Runtime, "hipGraphExecUpdate", Update),
    graph(Driver, "cuGraphExecUpdate", Update),
    graph(Driver, "cuGraphExecUpdate_v2", Update),
    graph(Runtime, "cudaGraphExecDestroy", Destroy),
    graph(Runtime, "hipGraphExecDestroy", Destroy),
    graph(Driver, "cuGraphExecDestroy", Destroy),
];
