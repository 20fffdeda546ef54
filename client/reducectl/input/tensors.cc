// The tensors of .safetensors files as inputs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/input/safetensors.h"
#include "kernels/system/quoted.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

template <class... What>
absl::Status Refused(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

// A file with tensors.
struct TensorFile {
  std::string name;  // of one of several; empty: there is one
  std::shared_ptr<const Memory> bytes;
};
struct FoundTensor {
  std::size_t file;
  Tensor tensor;
};

class SafetensorsArrays final : public InputReader {
 public:
  SafetensorsArrays(std::vector<TensorFile> files, std::vector<FoundTensor> found, std::vector<std::string> notes,
                    const InputOptions& options)
      : files_(std::move(files)), found_(std::move(found)), notes_(std::move(notes)), options_(options) {
    several_ = found_.size() > 1;
  }

  absl::StatusOr<std::optional<Piece>> Next() override {
    if (next_ == found_.size()) return std::nullopt;
    const FoundTensor& found = found_[next_];
    Piece piece{.array = next_++};
    if (const absl::Status status = Read(found, &piece.input); !status.ok()) {
      piece.input.status =
          absl::Status(status.code(), absl::StrCat("tensor ", Quoted(found.tensor.name), " ", status.message()));
    }
    piece.input.array = found.tensor.name;
    return piece;
  }

  std::vector<std::string> notes() const override { return notes_; }

 private:
  absl::Status Read(const FoundTensor& found, Input* input) const {
    const Tensor& tensor = found.tensor;
    const TensorDType* const dtype = FindTensorDType(tensor.dtype);
    const bool raw = dtype == nullptr || dtype->dtype.empty();
    if (raw && !options_.raw_dtypes) return Refused("is not read: dtype ", tensor.dtype.substr(0, 40));
    input->layout = {.dtype = raw ? "u8" : std::string(dtype->dtype), .shape = tensor.shape};
    if (raw) {
      input->raw_dtype = tensor.dtype;
      const int bits = dtype == nullptr ? 0 : dtype->bits;
      std::vector<std::int64_t>& shape = input->layout.shape;
      if (bits == 64) {
        input->layout.dtype = "u64";
      } else if (bits == 4 && !shape.empty() && shape.back() % 2 == 0) {
        shape.back() /= 2;
      } else if (bits != 8) {
        shape = {static_cast<std::int64_t>(tensor.end - tensor.begin)};
      }
    }
    if (const auto bytes = ArrayBytes(input->layout.dtype, input->layout.shape); !bytes.ok()) return bytes.status();
    const std::shared_ptr<const Memory>& file = files_[found.file].bytes;
    const absl::string_view elements = file->bytes().substr(tensor.begin, tensor.end - tensor.begin);
    ASSIGN_OR_RETURN(input->memory, Memory::Of(Memory(file, elements), options_.hold));
    return absl::OkStatus();
  }

  const std::vector<TensorFile> files_;
  const std::vector<FoundTensor> found_;
  const std::vector<std::string> notes_;
  const InputOptions options_;
  std::size_t next_ = 0;
};

std::string NamesOfTensors(const std::vector<FoundTensor>& found) {
  constexpr std::size_t kMost = 1000;
  const std::string names =
      absl::StrJoin(found, ", ", [](std::string* out, const FoundTensor& each) { *out += Quoted(each.tensor.name); });
  return names.size() <= kMost ? names : absl::StrCat(names.substr(0, kMost), "...");
}

// The tensors of the files of an index.
absl::Status ReadIndex(const std::string& path, absl::string_view text, std::vector<TensorFile>* files,
                       std::vector<FoundTensor>* found, std::vector<std::string>* notes) {
  ASSIGN_OR_RETURN(const auto index, ParseSafetensorsIndex(text));
  std::map<std::string, std::set<std::string>> wanted;  // by file
  for (const auto& [name, file] : index) wanted[file].insert(name);
  const std::string folder = path.substr(0, path.rfind('/') + 1);  // none: npos + 1
  for (auto& [file, names] : wanted) {
    absl::StatusOr<Memory> bytes = Memory::Map(folder + file);
    const auto tensors = bytes.ok() ? ParseSafetensors(bytes->bytes()) : bytes.status();
    if (!tensors.ok()) return Refused(Quoted(file), ": ", tensors.status().message());
    std::size_t others = 0;
    for (const Tensor& tensor : *tensors) {
      if (names.erase(tensor.name) == 0) {
        ++others;
      } else {
        found->push_back({files->size(), tensor});
      }
    }
    if (!names.empty()) {
      return Refused("weight_map: got ", Quoted(*names.begin()), " in ", Quoted(file),
                     ", which lacks it; allowed: tensors that the file has");
    }
    if (others > 0) {
      notes->push_back(
          absl::StrCat("is read without ", others, " tensors of ", Quoted(file), " that it does not name"));
    }
    files->push_back({file, std::make_shared<const Memory>(*std::move(bytes))});
  }
  return absl::OkStatus();
}

// Leaves the tensors that are asked for, in the order in which they are.
absl::Status ChooseTensors(const InputOptions& options, std::vector<FoundTensor>* found) {
  if (options.arrays.empty()) {
    if (!options.part.has_value() || found->size() <= 1) return absl::OkStatus();
    return Refused("got ", found->size(), " tensors (", NamesOfTensors(*found), "); choose one as FILE:NAME");
  }
  std::vector<FoundTensor> chosen;
  for (const std::string& name : options.arrays) {
    const auto is_it = [&name](const FoundTensor& each) { return each.tensor.name == name; };
    const auto at = std::find_if(found->begin(), found->end(), is_it);
    if (at == found->end()) return Refused("array: got ", Quoted(name), "; allowed: ", NamesOfTensors(*found));
    chosen.push_back(*at);
  }
  *found = std::move(chosen);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<InputReader>> OpenSafetensors(const std::string& path, absl::StatusOr<Memory> file,
                                                             const InputOptions& options) {
  if (!file.ok()) return file.status();
  std::vector<TensorFile> files;
  std::vector<FoundTensor> found;
  std::vector<std::string> notes;
  if (IsSafetensorsIndex(path)) {
    if (const auto status = ReadIndex(path, file->bytes(), &files, &found, &notes); !status.ok()) return status;
  } else {
    ASSIGN_OR_RETURN(const std::vector<Tensor> tensors, ParseSafetensors(file->bytes()));
    for (const Tensor& tensor : tensors) found.push_back({0, tensor});
    files.push_back({"", std::make_shared<const Memory>(*std::move(file))});
  }
  if (found.empty()) return Refused("has no tensor");
  RETURN_IF_ERROR(ChooseTensors(options, &found));
  return std::make_unique<SafetensorsArrays>(std::move(files), std::move(found), std::move(notes), options);
}

}  // namespace reduced::client
