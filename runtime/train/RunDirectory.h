// The run directory RUN/: checkpoints, metrics.jsonl, and copies of what
// generation or resuming elsewhere needs (program.tsr, recipe.yaml and
// tokenizer.json); init-from.txt if it began from weights; memory.json once the
// run has ended.
#pragma once
#include "runtime/data/FileOperations.h"

#include <string>
#include <string_view>

namespace tessera {

inline constexpr const char *kProgramFile = "program.tsr";
inline constexpr const char *kRecipeFile = "recipe.yaml";
/// Of a run on conversations.
inline constexpr const char *kChatTemplateFile = "chat_template.jinja";
inline constexpr const char *kTokenizerFile = "tokenizer.json";
inline constexpr const char *kMemoryFile = "memory.json";
/// The path of the weights that --init-from named, of a run that began there.
inline constexpr const char *kOriginFile = "init-from.txt";

/// The directory while a process trains in it: created if absent, locked
/// against a second trainer, without what an interrupted save left. In the end
/// the lock is removed if nothing else is there, and so is the directory if it
/// was created for this run.
class RunDirectory {
public:
  /// An error if another process has locked it, or it cannot be written.
  static StatusOr<RunDirectory> open(const std::string &path);
  RunDirectory(RunDirectory &&other) noexcept;
  RunDirectory &operator=(RunDirectory &&) = delete;
  ~RunDirectory();
  const std::string &path() const { return directory; }

private:
  RunDirectory(std::string path, int lock, bool isNew)
      : directory(std::move(path)), lock(lock), isNew(isNew) {}
  void removeIfEmpty();
  std::string directory;
  int lock;
  bool isNew; ///< the directory, which was created for this run
};

/// What kOriginFile has; empty without one.
StatusOr<std::string> readOrigin(const std::string &run);

/// Where the parts of a token directory are: `data` has train/ and eval/, or is
/// itself a split. tokenizer.json is looked for in `data` and in its parent.
struct DataLayout {
  std::string train;
  std::string eval;      ///< empty: none
  std::string tokenizer; ///< empty: none
};
/// `evalData` overrides what is found; empty: not given.
StatusOr<DataLayout> findData(const std::string &data,
                              const std::string &evalData);

/// The artifact at the end of `source` (a .tsr file or an executable that
/// carries one) as the bytes of a .tsr file.
StatusOr<std::string> programFileOf(const std::string &source);

} // namespace tessera
