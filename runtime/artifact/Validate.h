// The checks of ArtifactReader: a FlatBuffer that its verifier accepted is only
// well-formed; these make it safe to execute.
//
// Checked here:
//   - schema_version is kSchemaVersion (else the rebuild command is printed);
//   - enums hold values of the schema; strings hold no control characters;
//   - the mesh has at most kMaxRanks ranks, and each is in one share; shares
//     have states and programs of the same names and of the same whole tensors;
//     of every rank of a share, the ranges of a tensor's cuts multiply to its
//     shape;
//   - names are unique: axes, state, each program's inputs and outputs, kinds
//   of
//     devices, their programs and kernels; program and kernel names are C
//     identifiers;
//   - there is a device, and all have the same programs with the same inputs
//     and outputs;
//   - each target has each kernel in exactly one of its code objects; kernels
//     of a GPU, and no others, say how they are launched, within the limits
//     below;
//   - a kernel's tensor maps are of bf16, within what drivers take, and inside
//     of the argument that they name in every iteration; such a kernel has no
//     sizes and is launched one instance at a time;
//   - a tensor's shape × element size = its bytes; it is inside its space,
//     64-byte aligned, and overlaps no other tensor of its list; its role fits
//     the list; decay only on parameters; counters are one i64 or a table of
//     f32 (hyperparameters), metrics scalars;
//   - a launch's kernel exists; each instance has one argument for each entry
//     of Kernel.access and dynamic_sizes sizes; its blocks fit 32 bits in sum,
//     31 on a GPU, as do those of each variant; a kernel with variants is
//     launched one instance at a time;
//   - loops nest at most kMaxLoopDepth deep and run at least once, a node at
//     most kMaxRuns times in all;
//   - an argument has one stride for each enclosing loop, is 64-byte aligned at
//     the loops' start if a kernel sees it, and is inside its space in every
//     iteration; both sides of a copy have equal size;
//   - a collective goes over axes of the mesh; counts and targets, one for each
//     member, fit its arguments on every rank of the share; both arguments are
//     the same (all_reduce) or disjoint; a started one is waited for once,
//     later in the same list of steps;
//   - a step's layer is -1 or below kMaxLayers; the buffers that are listed for
//     display are inside the arena and live between steps that exist.
#pragma once
#include "runtime/artifact/Artifact_generated.h"
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::artifact {

inline constexpr unsigned kMaxLoopDepth = 8;
inline constexpr unsigned kMaxRank = 8;
inline constexpr std::int32_t kMaxLayers = 1 << 20;
inline constexpr std::size_t kMaxNameBytes = 512;
inline constexpr std::uint64_t kMaxRuns = std::uint64_t(1) << 32;
/// Of the state, an arena or an io space: what a process can address.
inline constexpr std::uint64_t kMaxSpaceBytes = std::uint64_t(1) << 46;
inline constexpr std::uint64_t kMaxScratchBytes = std::uint64_t(1) << 30;
/// Kinds of devices that are GPUs: "cuda:sm_80".
inline constexpr std::string_view kCudaPrefix = "cuda:";
/// All kinds that the compiler knows.
inline constexpr std::string_view kDeviceKinds[] = {"cpu", "cuda:sm_80",
                                                    "cuda:sm_90a"};
inline constexpr std::uint32_t kWarpThreads = 32, kMaxBlockThreads = 1024;
/// Of a block, static and dynamic: sm_90 has the most.
inline constexpr std::uint64_t kMaxSharedBytes = 227 << 10;
inline constexpr std::uint32_t kMaxRegisters = 255;
/// Bits of the block count of a launch. A CPU assigns blocks from a 32-bit
/// counter; a CUDA grid is an int.
inline constexpr unsigned kCpuBlockBits = 32, kGpuBlockBits = 31;

/// Where the buffer was read, for errors.
struct BufferPlace {
  std::string file;
  const std::byte *begin;   ///< first byte of the FlatBuffer in memory
  std::uint64_t fileOffset; ///< of that byte
};

/// The first defect, as "FILE: offset N: CAUSE; …", or success. The buffer must
/// have passed VerifyArtifactBuffer.
Status validate(const Artifact &artifact, const BufferPlace &place);

} // namespace tessera::artifact
