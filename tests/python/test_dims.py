"""DataArrays and Datasets: dimensions by name, coordinates, attributes; against xarray itself."""

import numpy as np
import pytest
import reduced

xr = pytest.importorskip("xarray")
pd = pytest.importorskip("pandas")

import reduced.xarray  # noqa: E402


@pytest.fixture
def array():
    times = pd.date_range("2024-01-15", periods=60, freq="D")
    random = np.random.default_rng(4)
    return xr.DataArray(random.integers(-99, 99, (2, 60, 3)).astype("f8"), dims=("lat", "time", "lon"), name="T", attrs={"units": "K"},
                        coords={"lat": [10, 20], "time": times, "lon": [1, 2, 3], "height": ("lat", [5.0, 6.0]), "run": 4, "grid": (("lat", "lon"), np.ones((2, 3)))})


def test_dimensions_by_name(client, array):
    with xr.set_options(keep_attrs=True):
        xr.testing.assert_identical(client.mean(array, axis="time"), array.mean("time"))
        xr.testing.assert_identical(client.mean(array, "time"), array.mean("time"))
        for axis in ("lat", ("time", "lon"), ["lon", "lat"]):
            xr.testing.assert_identical(client.max(array, axis=axis), array.max(axis))
        xr.testing.assert_identical(client.sum(array, axis=1), array.sum("time"))
        xr.testing.assert_identical(client.median(array, "time"), array.median("time"))
        without = array.drop_vars("run")  # which xarray drops there
        xr.testing.assert_identical(client.quantile(without, [0.25, 0.5], "time"), without.quantile([0.25, 0.5], "time"))
        for other in (array.transpose("lon", "time", "lat"), array[:, ::-1], array[::-1, ::2], array.T):
            xr.testing.assert_identical(client.sum(other, "time"), other.sum("time"))
            xr.testing.assert_identical(client.min(other, ["lat", "lon"]), other.min(["lat", "lon"]))
    assert client.mean(array, "time", keep_attrs=False).attrs == {} and client.mean(array, "time").attrs == {"units": "K"}
    assert isinstance(client.sum(array), np.float64) and client.sum(array) == array.sum()
    kept = client.sum(array, "time", keepdims=True)
    assert kept.dims == array.dims and kept.shape == (2, 1, 3) and "time" not in kept.coords and "grid" in kept.coords
    assert client.topk(array, 2, "time").values.dims[:2] == ("lat", "lon") and client.argmax(array, "time").dtype == np.int64
    results = client.reduce(array, "mean,max", axis="time")
    assert set(results) == {"mean", "max"} and results.max.identical(client.max(array, "time"))
    for axis, message in (("x", "axis: got 'x'; allowed: 'lat', 'time', 'lon'"), (3, "axis: got 3; allowed: -3 to 2"), (("time", "time"), "axis: got .*each dimension once")):
        with pytest.raises(ValueError, match=f"^{message}"):
            client.sum(array, axis)


def test_groups(client, array):
    def bare(found):
        return found.drop_vars("run", errors="ignore")  # which groups of xarray drop

    for by, right in (("time.month", array.groupby("time.month")), ("time.dayofweek", array.groupby("time.dayofweek"))):
        for op in ("mean", "max", "sum", "median"):
            xr.testing.assert_equal(bare(getattr(client, op)(array, keys=by)), bare(getattr(right, op)()))
    xr.testing.assert_equal(bare(client.mean(array, keys="time", bucket="month")), bare(array.resample(time="MS").mean()))
    season = array.time.dt.season
    found = client.count(array, keys=season)
    assert found.dims == ("lat", "season", "lon") and found.season.values.tolist() == ["DJF", "MAM"] and found.sum() == array.size
    both = client.sum(array, keys=["time.month", season])
    assert both.dims == ("lat", "group", "lon") and both.indexes["group"].names == ["month", "season"]
    assert client.sum(array, keys=[1, 2]).dims == ("group", "time", "lon") and client.sum(array, keys=np.array(["b", "a"]))["group"].values.tolist() == ["a", "b"]
    mask = array.time.dt.day < 20
    xr.testing.assert_equal(bare(client.sum(array, keys="time.month", where=mask)), bare(array.sel(time=mask).groupby("time.month").sum()))
    with pytest.raises(ValueError, match="^keys: got another index along 'time' than the array's"):
        client.sum(array, keys=season[::-1])
    with pytest.raises(ValueError, match=r"^keys: got dimensions \('x',\)"):
        client.sum(array, keys=xr.DataArray([1, 2], dims="x"))
    with pytest.raises(ValueError, match="^keys: got 'nowhere'; allowed: columns, or the names of coordinates"):
        client.sum(array, keys="nowhere")


def test_what_lies_beside(client, array):
    mask = array.time.dt.day < 20
    xr.testing.assert_allclose(client.mean(array, "time", where=mask), array.where(mask).mean("time", keep_attrs=True), rtol=1e-15)
    weights = array.time.dt.day.astype("f8")
    xr.testing.assert_allclose(client.mean(array, "time", weights=weights), array.weighted(weights).mean("time", keep_attrs=True), rtol=1e-15)
    over = xr.DataArray([1.0, 3.0], dims="lat", coords={"lat": [10, 20]})
    xr.testing.assert_allclose(client.mean(array, ("lat", "lon"), weights=over), array.weighted(over).mean(("lat", "lon"), keep_attrs=True), rtol=1e-15)
    with pytest.raises(ValueError, match="^where: got another index along 'time'"):
        client.sum(array, "time", where=mask[::-1])
    with pytest.raises(ValueError, match="^weights: got dimensions"):
        client.mean(array, "time", weights=xr.DataArray([1.0], dims="x"))
    nothing = client.max(array.astype("i8"), "time", where=xr.zeros_like(mask))
    assert nothing.isnull().all()
    with pytest.raises(reduced.InvalidArgumentError, match="op max: got an"):
        client.max(array, "time", where=xr.zeros_like(mask), empty="error")


def test_datasets(client, array):
    data = xr.Dataset({"a": array, "b": array.isel(lon=0, drop=True).astype("i4"), "c": ("lat", [1, 2]), "t": array.time + np.timedelta64(1, "h")}, attrs={"source": "x"})
    with xr.set_options(keep_attrs=True):
        xr.testing.assert_identical(client.max(data, "time"), data.max("time"))
        xr.testing.assert_identical(client.mean(data[["a", "b"]], ["time", "lat"]), data[["a", "b"]].mean(["time", "lat"]))
        xr.testing.assert_identical(client.median(data[["a"]], "time"), data[["a"]].median("time"))
    results = client.reduce(data[["a", "b"]], "sum,count", axis="lat")
    assert isinstance(results.sum, xr.Dataset) and results["count"]["b"].values.tolist() == [2] * 60
    months = client.sum(data[["a", "b"]], keys="time.month")
    assert months["a"].dims == ("lat", "month", "lon") and months["b"].dims == ("lat", "month")
    with pytest.raises(TypeError, match="^array: variable 't': op sum: got datetime64"):
        client.sum(data, "time")
    with pytest.raises(ValueError, match="^axis: got 'nowhere'"):
        client.sum(data, "nowhere")
    with pytest.raises(TypeError, match="^axis: got 0 for a Dataset"):
        client.sum(data, 0)


def test_blocks_of_dask(local, server, array):
    pytest.importorskip("dask.array")
    lazy = array.chunk({"time": 7, "lon": 2})
    with reduced.connect(server.unix, timeout=60) as remote:
        for client in (local, remote):
            xr.testing.assert_identical(client.mean(lazy, "time"), client.mean(array, "time"))
            xr.testing.assert_identical(client.sum(lazy, keys="time.month"), client.sum(array, keys="time.month"))
            xr.testing.assert_identical(client.argmax(lazy, "time"), client.argmax(array, "time"))
            xr.testing.assert_identical(client.median(lazy, "time"), client.median(array, "time"))
    assert local.sum(lazy) == array.sum()
    xr.testing.assert_identical(local.sum(lazy, "time", where=lazy.time.dt.day < 9), local.sum(array, "time", where=array.time.dt.day < 9))


def test_the_accessor(array):
    gaps = array.where(array > -50)
    with xr.set_options(keep_attrs=True):
        xr.testing.assert_identical(gaps.reduced.mean("time"), gaps.mean("time"))
        xr.testing.assert_identical(gaps.reduced.max(dim=("lat", "lon")), gaps.max(("lat", "lon")))
        xr.testing.assert_identical(xr.Dataset({"a": gaps}).reduced.std("time"), xr.Dataset({"a": gaps}).std("time").assign(a=xr.Dataset({"a": gaps}).reduced.std("time")["a"]))
    assert gaps.reduced.sum("time", skipna=False).isnull().any()
    xr.testing.assert_equal(gaps.drop_vars("run").reduced.groupby("time.month").mean(), gaps.drop_vars("run").groupby("time.month").mean())
    assert set(gaps.reduced.agg("mean,max", dim="time")) == {"mean", "max"}
    assert set(gaps.reduced.groupby("time", bucket="week").agg(["min"])) == {"min"}
    assert "axis" in __import__("inspect").signature(gaps.reduced.mean).parameters
