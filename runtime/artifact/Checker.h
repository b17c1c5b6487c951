// Shared by the files of the validator; nothing else includes this.
#pragma once
#include "runtime/artifact/Artifact_generated.h"
#include "runtime/artifact/ElementTypes.h"
#include "runtime/artifact/Shares.h"
#include "runtime/artifact/Validate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::artifact {

/// An artifact being validated, and where in it the first defect lies.
class Checker {
public:
  explicit Checker(const Artifact &artifact) : artifact(artifact) {}

  /// A defect of the table at `where`.
  template <typename... Args>
  Status fail(const void *where, fmt::format_string<Args...> format,
              Args &&...args) {
    at = static_cast<const std::byte *>(where);
    return Status::error(format, std::forward<Args>(args)...);
  }

  /// Bounds the work over all ranks of all shares, so that a hostile file
  /// cannot make validation slow. False once the limit is exceeded.
  bool lookAtRanks(std::uint64_t ranks) {
    looks += ranks;
    return looks <= kMaxLooks;
  }

  const Artifact &artifact;
  const std::byte *at = nullptr;
  std::optional<Mesh> mesh; ///< once it was checked
  /// Tensors of the state of the shares compared so far, with their shares.
  std::map<std::string_view,
           std::vector<std::pair<const Tensor *, const Share *>>>
      stateByName;

private:
  static constexpr std::uint64_t kMaxLooks = std::uint64_t(1) << 25;
  std::uint64_t looks = 0;
};

/// Checks what all ranks of a share, which were checked, have in common.
class ShareChecker {
public:
  ShareChecker(Checker &checker, const Share &share)
      : checker(checker), share(share) {}
  /// The factor's axes are axes of the mesh, each once.
  Status axes(const void *where,
              const flatbuffers::Vector<std::uint32_t> *axes);
  /// Sets `size` to the size of every rank's range of the factor, whose axes
  /// were checked. An error where they differ.
  Status sizeOf(const Cut &cut, std::uint64_t &size);
  /// Sets `members` to the member numbers of the share's ranks in groups along
  /// these axes, increasing.
  Status membersOf(const flatbuffers::Vector<std::uint32_t> &axes,
                   const std::vector<std::uint32_t> *&members);

  Checker &checker;
  const Share &share;

private:
  using Axes = std::vector<std::uint32_t>;
  std::map<std::pair<std::uint64_t, Axes>, std::uint64_t> sizes;
  std::map<Axes, std::vector<std::uint32_t>> members;
};

/// Puts "PREFIX: " before an error's text, so that contexts are formatted only
/// when there is something to say.
template <typename... Args>
Status within(const Status &inner, fmt::format_string<Args...> format,
              Args &&...args) {
  return Status::error("{}: {}",
                       fmt::format(format, std::forward<Args>(args)...),
                       inner.message());
}

#define TESSERA_RETURN_WITHIN(expression, ...)                                 \
  do {                                                                         \
    if (::tessera::Status status_ = (expression); !status_.ok())               \
      return ::tessera::artifact::within(status_, __VA_ARGS__);                \
  } while (false)

/// Whether `value` is one of the schema's values.
template <typename Enum> bool isKnown(Enum value) {
  return value >= Enum::MIN && value <= Enum::MAX;
}

/// Whether the elements are aligned to their size. The FlatBuffers verifier
/// (2.0.8) looks only at the alignment of a vector's length; its builder aligns
/// no elements where there are none.
template <typename T> bool isAligned(const flatbuffers::Vector<T> *vector) {
  return !vector || vector->size() == 0 ||
         reinterpret_cast<std::uintptr_t>(vector->Data()) % sizeof(T) == 0;
}

/// Of the state, or of a program's arena or io space.
std::uint64_t spaceBytes(const Share &share, const Program &program,
                         Space space);

/// 1 to kMaxNameBytes graphic ASCII characters without quotes and backslashes:
/// valid unescaped in error lines, JSON and file names.
bool isName(std::string_view text);
/// [A-Za-z_][A-Za-z0-9_]*, at most kMaxNameBytes.
bool isIdentifier(std::string_view text);
/// No control characters; tab and newline too are refused.
bool isLine(std::string_view text);
/// Lines: no control characters but newlines.
bool isText(std::string_view text);
/// A name for an error line: itself if it is fit to print.
std::string_view printable(std::string_view text);

/// A list of tensors that must be in `space` with one of two roles.
struct TensorList {
  const flatbuffers::Vector<flatbuffers::Offset<Tensor>> *tensors;
  std::string_view what; // "state tensor"
  Space space;
  std::uint64_t spaceBytes;
  bool (*fits)(Role role);
};
Status validateTensors(ShareChecker &share, const TensorList &list);
/// Kernels and code objects of one kind of device.
Status validateCode(Checker &checker, const DeviceCode &code);
Status validateProgram(ShareChecker &share, const DeviceCode &code,
                       const Program &program);
/// All of it except the offsets of its arguments.
Status validateCollective(ShareChecker &share, const Collective &collective);
/// Checks the mesh, and that every rank is in exactly one share.
Status validateMesh(Checker &checker);
/// Checks that a share's ranks agree on the factors of "mesh.offsets".
Status validateOffsets(ShareChecker &share);
/// Checks that the programs of two shares, and their common state, differ only
/// in sizes.
Status validateAgreement(Checker &checker, const Share &first,
                         const Share &other);
/// Checks that all shares together have every element of the state, once all
/// were compared.
Status validateWholeState(Checker &checker);
/// Whether both are shards of the same whole tensor.
bool isSameTensor(const Tensor &a, const Tensor &b);

/// Reports the second of two tables of equal names.
template <typename Table, typename NameOf>
Status
checkUnique(Checker &checker,
            const flatbuffers::Vector<flatbuffers::Offset<Table>> &tables,
            std::string_view what, NameOf nameOf) {
  std::vector<const Table *> sorted(tables.begin(), tables.end());
  std::sort(sorted.begin(), sorted.end(), [&](const Table *a, const Table *b) {
    return nameOf(*a) < nameOf(*b);
  });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (nameOf(*sorted[i - 1]) == nameOf(*sorted[i]))
      return checker.fail(sorted[i], "{} '{}' is listed twice", what,
                          nameOf(*sorted[i]));
  return Status::success();
}

} // namespace tessera::artifact
