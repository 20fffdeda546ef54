#include "client/reducectl/input/foreign.h"

#include <cstddef>

namespace reduced::client {
namespace {

using absl::string_view;

// The bytes at an offset that tell a format. `size` because some of them are NULs.
constexpr struct {
  std::size_t offset;
  string_view bytes;
  const char* name;
} kForeign[] = {
    {0, "\x89HDF\r\n\x1a\n", "an HDF5 or NetCDF-4 file"},
    {0, "CDF\x01", "a NetCDF file"},
    {0, "CDF\x02", "a NetCDF file"},
    {0, "CDF\x05", "a NetCDF file"},
    {0, "PAR1", "a Parquet file"},
    {0, "ARROW1", "an Arrow or Feather file"},
    {0, "FEA1", "a Feather file"},
    {0, "ORC", "an ORC file"},
    {0, "Obj\x01", "an Avro file"},
    {0, "SQLite format 3", "an SQLite database"},
    {0, "MATLAB 5.0 MAT-file", "a MATLAB file"},
    {0, "SIMPLE  =", "a FITS file"},
    {0, "GRIB", "a GRIB file"},
    {0, "II*\0", "a TIFF image"},
    {0, string_view("MM\0*", 4), "a TIFF image"},
    {0, "\x89PNG\r\n", "a PNG image"},
    {0, "%PDF-", "a PDF document"},
    {0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel or other Office document"},
    {0, "RDX3\n", "a file of R"},
    {0, "RDX2\n", "a file of R"},
    {0, "\x80\x02", "a pickle of Python"},
    {0, "\x80\x03", "a pickle of Python"},
    {0, "\x80\x04\x95", "a pickle of Python"},
    {0, "\x80\x05\x95", "a pickle of Python"},
    {257, "ustar", "a tar archive"},
    {0, "7z\xbc\xaf\x27\x1c", "a 7z archive"},
    {0, "Rar!\x1a\x07", "a RAR archive"},
    {0, "PK\x03\x04", "a zip archive"},
    {0, "\x04\x22\x4d\x18", "compressed with LZ4"},
    {0, "\x1f\x9d", "compressed with compress (.Z)"},
    {0, "LZIP", "compressed with lzip"},
    {0, string_view("\x5d\0\0", 3), "compressed with LZMA (.lzma)"},
    {0, "\x89LZO", "compressed with lzop"},
    {0, string_view("\xff\x06\0\0sNaPpY", 10), "compressed with Snappy"},
};

}  // namespace

const char* ForeignFormat(string_view head) {
  for (const auto& [offset, bytes, name] : kForeign) {
    if (head.size() >= offset + bytes.size() && head.substr(offset, bytes.size()) == bytes) return name;
  }
  return nullptr;
}

}  // namespace reduced::client
