// NCCL's library, loaded while the program runs, and its errors as text.
#pragma once
#include "runtime/comm/nccl/NcclApi.h"
#include "runtime/support/Status.h"

#include <memory>

namespace tessera::comm::nccl {

class Library {
public:
  /// Loads libnccl.so.2, or what the environment variable TESSERA_LIBNCCL
  /// names. An error says whether the library is missing, too old, or another.
  static StatusOr<std::shared_ptr<const Library>> load();
  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;

  // NOLINTBEGIN(bugprone-macro-parentheses): declarations
#define TESSERA_NCCL_MEMBER(member, symbol, parameters)                        \
  Result(*member) parameters = nullptr;
  TESSERA_NCCL_FUNCTIONS(TESSERA_NCCL_MEMBER)
#undef TESSERA_NCCL_MEMBER
  // NOLINTEND(bugprone-macro-parentheses)

  /// "WHAT: NCCL says …", with the last error of the communicator, if any.
  Status check(Result result, const char *what,
               Communicator communicator = nullptr) const;

private:
  Library() = default;
  const char *(*errorText)(Result) = nullptr;
  const char *(*lastError)(Communicator) = nullptr;
};

} // namespace tessera::comm::nccl
