#include "compiler/target/cpu/Linker.h"
#include "lld/Common/Driver.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <mutex>

LLD_HAS_DRIVER(elf)

using namespace llvm;

namespace tessera::cpu {

// One file of all objects: some file systems take longer to create a hundred
// files than the linker takes for all else.
static Error writeArchive(StringRef path, ArrayRef<StringRef> objects) {
  std::vector<NewArchiveMember> members;
  for (StringRef object : objects)
    members.emplace_back(MemoryBufferRef(object, "kernel.o"));
  std::error_code code;
  raw_fd_ostream stream(path, code);
  if (!code) {
    if (Error error = writeArchiveToStream(
            stream, members, SymtabWritingMode::NoSymtab,
            object::Archive::K_GNU, /*Deterministic=*/true, /*Thin=*/false))
      return error;
    stream.close();
    code = stream.error();
    stream.clear_error();
  }
  if (code)
    return createStringError(code,
                             "cannot write " + path + ": " + code.message());
  return Error::success();
}

Expected<std::string> linkSharedObject(ArrayRef<StringRef> objects) {
  SmallString<128> directory;
  if (std::error_code code =
          sys::fs::createUniqueDirectory("tessera-link", directory))
    return createStringError(code, "cannot make a temporary directory for the "
                                   "linker: " +
                                       code.message());
  auto cleanUp =
      make_scope_exit([&] { (void)sys::fs::remove_directories(directory); });
  std::vector<std::string> arguments{"ld.lld",
                                     "-shared",
                                     "--no-undefined",
                                     "--hash-style=gnu",
                                     "--build-id=none",
                                     "-z",
                                     "noexecstack",
                                     "-z",
                                     "now",
                                     "-o"};
  auto pathOf = [&](const Twine &name) {
    SmallString<128> path(directory);
    sys::path::append(path, name);
    return std::string(path);
  };
  std::string output = pathOf("kernels.so");
  arguments.push_back(output);
  arguments.push_back("--whole-archive");
  arguments.push_back(pathOf("kernels.a"));
  if (Error error = writeArchive(arguments.back(), objects))
    return std::move(error);
  std::vector<const char *> argv;
  argv.reserve(arguments.size());
  for (const std::string &argument : arguments)
    argv.push_back(argument.c_str());

  std::string messages;
  raw_string_ostream stream(messages);
  static std::mutex oneAtATime; // lld keeps its state in globals
  {
    std::lock_guard lock(oneAtATime);
    lld::Result result =
        lld::lldMain(argv, stream, stream, {{lld::Gnu, &lld::elf::link}});
    if (result.retCode != 0 || !result.canRunAgain)
      return createStringError("cannot link the kernels: " +
                               StringRef(messages).trim());
  }
  auto linked = MemoryBuffer::getFile(output, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false);
  if (!linked)
    return createStringError(linked.getError(),
                             "cannot read the linker's output: " +
                                 linked.getError().message());
  return (*linked)->getBuffer().str();
}

} // namespace tessera::cpu
