"""Held-out views that are watched: which objects they show."""

from fusedplanes.planes.preview import HeldOutViews


class InClasses:
    """A data set whose objects are said to be of several classes."""

    def __init__(self, dataset, classes):
        self.dataset, self.ids = dataset, dataset.ids
        self.classes = dict(zip(dataset.ids, classes, strict=True))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, key):
        return self.dataset[key]


def shown(dataset, objects):
    return [name for name, *_ in HeldOutViews(dataset, objects=objects).items]


def test_objects_are_spread_over_the_data_set(ellipsoids):
    assert shown(ellipsoids, 6) == list(ellipsoids.ids)
    assert shown(ellipsoids, 2) == ["ellipsoid_0", "ellipsoid_2"]


def test_every_class_is_shown(ellipsoids):
    assert shown(InClasses(ellipsoids, "aaabc"), 3) == ["ellipsoid_0", "ellipsoid_3", "ellipsoid_4"]
    assert shown(InClasses(ellipsoids, "abcde"), 2) == list(ellipsoids.ids)
    assert shown(InClasses(ellipsoids, "aaaab"), 4) == ["ellipsoid_0", "ellipsoid_2", "ellipsoid_4"]
