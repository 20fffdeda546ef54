// The commands about arrays that the server keeps.
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/reducectl/commands/commands.h"
#include "client/reducectl/input/input.h"
#include "client/reducectl/output/progress.h"
#include "client/reducectl/output/render.h"
#include "reduced/client.h"

namespace reduced::client {
namespace {

// user@host: whose arrays are who puts and deletes them without saying.
std::string ThisOwner() {
  constexpr std::size_t kMaxBytes = 64;  // that the server takes
  const passwd* const user = getpwuid(geteuid());
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"localhost"};
  return absl::StrCat(user == nullptr ? absl::StrCat(geteuid()) : user->pw_name, "@", host.data()).substr(0, kMaxBytes);
}

// The server knows who has credentials, and that theirs are the arrays.
std::string OwnerOf(const CommonOptions& common, const std::string& owner) {
  const bool known = !common.token_file.empty() || !common.tls_cert.empty();
  return owner.empty() && !known ? ThisOwner() : owner;
}

Json ToJson(const ArrayInfo& array) {
  return {{"id", array.id},
          {"dtype", array.dtype},
          {"shape", array.shape},
          {"bytes", array.bytes},
          {"device", array.device},
          {"owner", array.owner},
          {"age_s", absl::ToDoubleSeconds(array.age)},
          {"expires_in_s", absl::ToDoubleSeconds(array.expires_in)},
          {"users", array.users}};
}

std::string Seconds(absl::Duration duration) { return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1))); }

absl::StatusOr<ResidentArray> Upload(Client& client, const Input& input, bool json, PutOptions options) {
  UploadProgress progress(!json);
  options.on_progress = progress.hook();
  return client.Put(input.View(), options);
}

ExitCode PutOne(Client& client, const std::string& source, bool json, const PutArguments& arguments) {
  const absl::StatusOr<Input> input = ReadInput(source, arguments.input);
  if (!input.ok()) {
    std::cerr << "reducectl: " << source << ": " << input.status().message() << "\n";
    return kData;
  }
  absl::StatusOr<ResidentArray> array = Upload(client, *input, json, arguments.options);
  if (!array.ok()) return ReportCallError(source, array.status());
  Json line = {{"source", source}};
  line.update(ToJson(array->info()));
  std::cout << (json ? Dump(line) : array->id()) << "\n" << std::flush;
  if (!std::cout) return kOutput;  // nobody has the id: the array goes again
  array->Release();
  return kOk;
}

}  // namespace

ExitCode RunArraysPut(const CommonOptions& common, PutArguments arguments) {
  const std::unique_ptr<Client> client = MakeClient(common);
  if (client == nullptr) return kUsage;
  arguments.options.owner = OwnerOf(common, arguments.options.owner);
  ExitCode first_failure = kOk;
  for (const std::string& source : arguments.sources) {
    const ExitCode code = PutOne(*client, source, common.json, arguments);
    if (first_failure == kOk) first_failure = code;
  }
  return first_failure;
}

ExitCode RunArraysList(const CommonOptions& common, const std::string& owner) {
  const std::unique_ptr<Client> client = MakeClient(common);
  if (client == nullptr) return kUsage;
  const absl::StatusOr<std::vector<ArrayInfo>> arrays = client->ListArrays(owner);
  if (!arrays.ok()) return ReportCallError("arrays list", arrays.status());
  std::vector<std::vector<std::string>> rows = {
      {"ID", "DTYPE", "SHAPE", "SIZE", "DEVICE", "OWNER", "AGE", "EXPIRES IN", "USERS"}};
  for (const ArrayInfo& array : *arrays) {
    if (common.json) std::cout << Dump(ToJson(array)) << "\n";
    rows.push_back({array.id, array.dtype, absl::StrCat("(", absl::StrJoin(array.shape, ", "), ")"),
                    FormatBytes(array.bytes), array.device, absl::Utf8SafeCHexEscape(array.owner), Seconds(array.age),
                    Seconds(array.expires_in), absl::StrCat(array.users)});
  }
  if (!common.json) std::cout << FormatTable(rows);
  return kOk;
}

ExitCode RunArraysDelete(const CommonOptions& common, const std::vector<std::string>& ids, const std::string& owner) {
  const std::unique_ptr<Client> client = MakeClient(common);
  if (client == nullptr) return kUsage;
  ExitCode first_failure = kOk;
  for (const std::string& id : ids) {
    const absl::Status status = client->DeleteArray(id, OwnerOf(common, owner));
    const ExitCode code = status.ok() ? kOk : ReportCallError(id, status);
    if (first_failure == kOk) first_failure = code;
  }
  return first_failure;
}

}  // namespace reduced::client
