#include "compiler/Files.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace tessera;
namespace fs = llvm::sys::fs;

static llvm::Error failure(llvm::StringRef path, const llvm::Twine &reason) {
  return llvm::createStringError(path + ": " + reason);
}

// Null where all went well.
static std::error_code writeTo(llvm::raw_fd_ostream &out,
                               llvm::ArrayRef<llvm::StringRef> pieces) {
  for (llvm::StringRef piece : pieces)
    out << piece;
  out.flush();
  std::error_code error = out.error();
  out.clear_error();
  return error;
}

// Pipes, devices and files without a name (memfd_create) cannot be renamed
// over.
static bool isNamedFile(llvm::StringRef path) {
  fs::file_status status;
  if (fs::status(path, status) == std::errc::no_such_file_or_directory)
    return true; // it will be
  return fs::is_regular_file(status) && status.getLinkCount() > 0;
}

static llvm::Error writeDirectly(llvm::StringRef path,
                                 llvm::ArrayRef<llvm::StringRef> pieces) {
  std::error_code error;
  llvm::raw_fd_ostream out(path, error);
  if (error)
    return failure(path, "cannot write here: " + error.message());
  if (std::error_code failed = writeTo(out, pieces))
    return failure(path == "-" ? "stdout" : path,
                   "writing failed: " + failed.message());
  return llvm::Error::success();
}

llvm::Error tessera::checkWritable(llvm::StringRef path) {
  if (path == "-")
    return llvm::Error::success();
  if (fs::is_directory(path))
    return failure(path, "is a directory; name the file to write");
  if (!isNamedFile(path))
    return llvm::Error::success();
  llvm::StringRef folder = llvm::sys::path::parent_path(path);
  if (!folder.empty() && !fs::is_directory(folder))
    return failure(path,
                   "directory '" + folder +
                       "' does not exist; create it first, or choose another");
  auto temp = fs::TempFile::create(path + ".%%%%%%");
  if (!temp)
    return failure(path,
                   "cannot write here: " + llvm::toString(temp.takeError()));
  return temp->discard();
}

llvm::Error tessera::writeFile(llvm::StringRef path,
                               llvm::ArrayRef<llvm::StringRef> pieces,
                               bool executable) {
  if (path == "-" || !isNamedFile(path))
    return writeDirectly(path, pieces);
  auto temp = fs::TempFile::create(path + ".%%%%%%",
                                   fs::all_read | fs::all_write |
                                       (executable ? fs::all_exe : 0));
  if (!temp)
    return failure(path,
                   "cannot write here: " + llvm::toString(temp.takeError()));
  std::error_code failed;
  {
    llvm::raw_fd_ostream out(temp->FD, /*shouldClose=*/false);
    failed = writeTo(out, pieces);
  }
  if (failed) {
    llvm::consumeError(temp->discard());
    return failure(path, "writing failed: " + failed.message() +
                             "; free space and try again");
  }
  if (llvm::Error error = temp->keep(path))
    return failure(path, llvm::toString(std::move(error)));
  return llvm::Error::success();
}
