#include "runtime/comm/MpiTransport.h"

#include "runtime/comm/MpiAbi.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace tessera::comm {
namespace {

constexpr const char *kVariable = "TESSERA_LIBMPI";
/// MPI counts bytes in an int: longer messages are cut.
constexpr std::size_t kPiece = std::size_t(1) << 30;

/// A loaded library, never unloaded: it keeps threads and exit handlers.
struct Library {
  void *handle = nullptr;
  std::string path;
};

template <typename Function>
Status find(const Library &library, const char *name, Function *&function) {
  function = reinterpret_cast<Function *>(::dlsym(library.handle, name));
  if (function)
    return Status::success();
  return Status::error("the MPI library {} has no {}: name another one in {}",
                       library.path, name, kVariable);
}

/// The functions of one interface.
template <typename Abi> struct Calls {
  using Communicator = typename Abi::Communicator;
  using Datatype = typename Abi::Datatype;
  using ErrorHandler = typename Abi::ErrorHandler;
  using Request = typename Abi::Request;
  using MpiStatus = typename Abi::Status;

  int (*initialize)(int *, char ***, int, int *);
  int (*rank)(Communicator, int *);
  int (*size)(Communicator, int *);
  int (*setErrorHandler)(Communicator, ErrorHandler);
  int (*send)(const void *, int, Datatype, int, int, Communicator, Request *);
  int (*receive)(void *, int, Datatype, int, int, Communicator, Request *);
  int (*test)(Request *, int *, MpiStatus *);
  int (*cancel)(Request *);
  int (*free)(Request *);
  int (*probe)(int, int, Communicator, int *, MpiStatus *);
  int (*errorText)(int, char *, int *);
  int (*finalize)();
  int (*abort)(Communicator, int);
  Communicator world;
  Datatype byte;
  ErrorHandler errorsReturn;

  Status load(const Library &library) {
    const auto all = [&](auto... named) {
      Status status;
      const auto one = [&](const auto &entry) {
        if (status.ok())
          status = find(library, entry.first, *entry.second);
      };
      (one(named), ...);
      return status;
    };
    TESSERA_RETURN_IF_ERROR(all(
        std::pair("MPI_Init_thread", &initialize),
        std::pair("MPI_Comm_rank", &rank), std::pair("MPI_Comm_size", &size),
        std::pair("MPI_Comm_set_errhandler", &setErrorHandler),
        std::pair("MPI_Isend", &send), std::pair("MPI_Irecv", &receive),
        std::pair("MPI_Test", &test), std::pair("MPI_Cancel", &cancel),
        std::pair("MPI_Request_free", &free), std::pair("MPI_Iprobe", &probe),
        std::pair("MPI_Error_string", &errorText),
        std::pair("MPI_Finalize", &finalize), std::pair("MPI_Abort", &abort)));
    return loadHandles(library);
  }

  Status loadHandles(const Library &library) {
    if constexpr (std::is_same_v<Communicator, int>) {
      world = Abi::kWorld;
      byte = Abi::kByte;
      errorsReturn = Abi::kErrorsReturn;
      return Status::success();
    } else {
      const auto object = [&](const char *name, auto &handle) {
        return find(library, name, handle);
      };
      TESSERA_RETURN_IF_ERROR(object(Abi::kWorld, world));
      TESSERA_RETURN_IF_ERROR(object(Abi::kByte, byte));
      return object(Abi::kErrorsReturn, errorsReturn);
    }
  }
};

template <typename Abi> class MpiTransport : public Transport {
public:
  explicit MpiTransport(const Calls<Abi> &mpi) : mpi(mpi) {}

  Status initialize(const Launch &launch, const Library &library) {
    int provided = 0;
    TESSERA_RETURN_IF_ERROR(
        check(mpi.initialize(nullptr, nullptr, kMpiThreadSerialized, &provided),
              "MPI_Init_thread"));
    if (provided < kMpiThreadSerialized)
      return Status::error("the MPI library {} does not support threads: name "
                           "one that does in {}",
                           library.path, kVariable);
    TESSERA_RETURN_IF_ERROR(check(
        mpi.setErrorHandler(mpi.world, mpi.errorsReturn), "MPI's handler"));
    TESSERA_RETURN_IF_ERROR(check(mpi.rank(mpi.world, &myRank), "MPI's rank"));
    TESSERA_RETURN_IF_ERROR(check(mpi.size(mpi.world, &mySize), "MPI's size"));
    if (myRank == launch.rank && mySize == launch.size)
      return Status::success();
    return Status::error(
        "{} is rank {} of {} to the MPI library {}: use the mpirun of that "
        "library, or name its library in {}",
        launch.describe(), myRank, mySize, library.path, kVariable);
  }

  int rank() const override { return myRank; }
  int size() const override { return mySize; }

  StatusOr<Request> send(int to, int tag,
                         std::span<const std::byte> bytes) override {
    return post(to, bytes.size(), [&](std::size_t at, int length, auto *to_) {
      return mpi.send(bytes.data() + at, length, mpi.byte, to, tag, mpi.world,
                      to_);
    });
  }

  StatusOr<Request> receive(int from, int tag,
                            std::span<std::byte> bytes) override {
    return post(from, bytes.size(), [&](std::size_t at, int length, auto *to) {
      return mpi.receive(bytes.data() + at, length, mpi.byte, from, tag,
                         mpi.world, to);
    });
  }

  StatusOr<bool> test(Request request) override {
    Message &message = messages[request];
    while (!message.pieces.empty()) {
      int isThrough = 0;
      typename Abi::Status status{};
      if (const int result =
              mpi.test(&message.pieces.back(), &isThrough, &status);
          result != kMpiSuccess) {
        const int peer = message.peer;
        release(request);
        return check(result, fmt::format("a message between rank {} and rank "
                                         "{}",
                                         myRank, peer));
      }
      if (!isThrough)
        return false;
      message.pieces.pop_back();
    }
    release(request);
    return true;
  }

  void cancel(Request request) override {
    for (auto &piece : messages[request].pieces) {
      mpi.cancel(&piece);
      mpi.free(&piece);
    }
    release(request);
  }

  StatusOr<std::optional<int>> probe(int tag) override {
    int isThere = 0;
    typename Abi::Status status{};
    TESSERA_RETURN_IF_ERROR(
        check(mpi.probe(Abi::kAnySource, tag, mpi.world, &isThere, &status),
              "MPI_Iprobe"));
    return isThere ? std::optional(status.source) : std::nullopt;
  }

  Status finish() override { return check(mpi.finalize(), "MPI_Finalize"); }

  void abort(int exitCode) override {
    mpi.abort(mpi.world, exitCode);
    ::_exit(exitCode);
  }

private:
  struct Message {
    std::vector<typename Abi::Request> pieces; // last one first
    int peer = 0;
  };

  Status check(int result, std::string_view what) const {
    if (result == kMpiSuccess)
      return Status::success();
    char text[1024] = "unknown error";
    int length = 0;
    mpi.errorText(result, text, &length);
    std::string line(text, ::strnlen(text, sizeof(text)));
    std::replace(line.begin(), line.end(), '\n', ' ');
    return Status::error("{} failed: {}", what, line);
  }

  template <typename Start>
  StatusOr<Request> post(int peer, std::size_t bytes, const Start &start) {
    Request slot;
    if (spare.empty()) {
      slot = static_cast<Request>(messages.size());
      messages.emplace_back();
    } else {
      slot = spare.back();
      spare.pop_back();
    }
    Message &message = messages[slot];
    message.peer = peer;
    message.pieces.resize(
        std::max<std::size_t>((bytes + kPiece - 1) / kPiece, 1));
    for (std::size_t i = 0, at = 0; i < message.pieces.size(); ++i) {
      const std::size_t length = std::min(kPiece, bytes - at);
      auto &piece = message.pieces[message.pieces.size() - 1 - i];
      TESSERA_RETURN_IF_ERROR(check(
          start(at, static_cast<int>(length), &piece),
          fmt::format("a message between rank {} and rank {}", myRank, peer)));
      at += length;
    }
    return slot;
  }

  void release(Request request) {
    messages[request].pieces.clear();
    spare.push_back(request);
  }

  Calls<Abi> mpi;
  int myRank = 0, mySize = 1;
  std::deque<Message> messages; // by Request
  std::vector<Request> spare;
};

template <typename Abi>
StatusOr<std::unique_ptr<Transport>> joinAs(const Launch &launch,
                                            const Library &library) {
  Calls<Abi> mpi{};
  TESSERA_RETURN_IF_ERROR(mpi.load(library));
  auto transport = std::make_unique<MpiTransport<Abi>>(mpi);
  TESSERA_RETURN_IF_ERROR(transport->initialize(launch, library));
  return std::unique_ptr<Transport>(std::move(transport));
}

StatusOr<Library> loadLibrary(const Launch &launch) {
  std::vector<std::string> names = {"libmpich.so.12", "libmpi.so.12"};
  if (launch.starter == Launch::Starter::openMpi)
    names = {"libmpi.so.40"};
  const char *named = std::getenv(kVariable);
  if (named && *named)
    names = {named};
  std::string causes;
  for (const std::string &name : names) {
    // Global: Open MPI's own plug-ins look for its symbols.
    if (void *handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL))
      return Library{handle, name};
    const char *cause = ::dlerror();
    causes += (causes.empty() ? "" : "; ") + std::string(cause ? cause : name);
  }
  return Status::error("{}, but its MPI library cannot be loaded ({}): install "
                       "it, or name it in {}",
                       launch.describe(), causes, kVariable);
}

} // namespace

StatusOr<std::unique_ptr<Transport>> joinMpi(const Launch &launch) {
  StatusOr<Library> library = loadLibrary(launch);
  if (!library.ok())
    return library.status();
  if (!::dlsym(library->handle, OpenMpiAbi::kWorld))
    return joinAs<MpichAbi>(launch, *library);
  // More ranks than processors are normal in tests; waiting must not turn.
  ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  return joinAs<OpenMpiAbi>(launch, *library);
}

} // namespace tessera::comm
